// SPDX-License-Identifier: Apache-2.0
#include "models/llama/llama.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::llama {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  model::Architecture a;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  return a;
}

}  // namespace

model::ModelFamily family() {
  return model::decoder_family("llama", read);
}

}  // namespace finetune::models::llama
