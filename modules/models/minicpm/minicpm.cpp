// SPDX-License-Identifier: Apache-2.0
// MiniCPM 1 to 4 without experts: what is embedded, added and read by the head is scaled.
#include "models/minicpm/minicpm.hpp"

#include <cmath>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::minicpm {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  if (reader.has("sparse_config"))
    reader.fail_unsupported("sparse_config", "is set", "every token sees all before it here");
  if (reader.has("num_experts") && reader.object().at("num_experts") != 0)
    reader.fail_unsupported("num_experts", "is set", "MiniCPM is computed without experts");
  model::Architecture a;
  model::read_decoder(reader, a, {.norm_eps = 1e-5, .is_tied = true});
  model::read_biases(reader, a);
  a.embedding_scale = model::read_factor(reader, "scale_emb");
  a.residual_scale =
      model::read_factor(reader, "scale_depth") / std::sqrt(static_cast<double>(a.num_layers));
  a.head_scale = model::read_factor(reader, "dim_model_base", static_cast<double>(a.d_model)) /
                 static_cast<double>(a.d_model);
  return a;
}

}  // namespace

model::ModelFamily minicpm() {
  return model::decoder_family("minicpm", read);
}

}  // namespace finetune::models::minicpm
