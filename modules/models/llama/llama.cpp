// SPDX-License-Identifier: Apache-2.0
#include "models/llama/llama.hpp"

#include "model/config_json.hpp"
#include "model/layout.hpp"

namespace finetune::models::llama {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  model::Architecture a;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  return a;
}

model::ParameterTable describe(const model::Architecture& a) {
  return model::lay_out(a);
}

model::ModelPtr build(const model::Architecture& a) {
  return model::make_decoder(a, model::lay_out(a).decoder);
}

}  // namespace

model::ModelFamily family() {
  return {"llama", {"llama"}, read, describe, build};
}

}  // namespace finetune::models::llama
