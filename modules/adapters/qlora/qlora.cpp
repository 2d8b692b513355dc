// SPDX-License-Identifier: Apache-2.0
#include "adapters/qlora/qlora.hpp"

#include "adapters/lora/lora.hpp"

namespace finetune::adapters::qlora {
namespace {

/// Every matrix of a block, adapted or not; embedding, head and routers stay as they are, and so
/// does what the model's files have packed.
void rewrite(const model::AdapterSettings& settings, const std::string& where,
             model::ParameterTable& table) {
  using Kind = model::Packing::Kind;
  for (model::Parameter& row : table.rows) {
    const bool is_matrix = row.role == model::Role::linear || row.role == model::Role::expert;
    if (!is_matrix || row.packing.in_files) continue;
    row.packing = {.kind = Kind::nf4, .nests = settings.double_quant};
  }
  lora::rewrite(settings, where, table);
}

}  // namespace

model::Adapter adapter(const model::AdapterMath* math) {
  model::Adapter adapter = lora::adapter(math);
  adapter.name = "qlora";
  adapter.sentence = "the same on weights quantised to 4 bits (NF4)";
  adapter.rewrite = rewrite;
  adapter.packs_weights = true;
  return adapter;
}

}  // namespace finetune::adapters::qlora
