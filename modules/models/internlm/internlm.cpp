// SPDX-License-Identifier: Apache-2.0
// InternLM 3: biases of its own names.
#include "models/internlm/internlm.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::internlm {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  model::Architecture a;
  model::read_decoder(reader, a);
  a.qkv_bias = reader.boolean("qkv_bias", false);
  a.attention_out_bias = a.feed_forward_bias = reader.boolean("bias", false);
  return a;
}

}  // namespace

model::ModelFamily internlm3() {
  return model::decoder_family("internlm3", read);
}

}  // namespace finetune::models::internlm
