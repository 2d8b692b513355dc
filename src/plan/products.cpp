// SPDX-License-Identifier: Apache-2.0
#include "plan/products.hpp"

#include <algorithm>

namespace finetune::plan {
namespace {

using model::Parameter;
using model::Role;

void add_matrix(Product& product, const model::ParameterTable& table, const Parameter& row) {
  product.is_trained = row.trainable;
  product.num_inputs = row.shape.back();
  product.num_outputs += row.count() / row.shape.back();
  product.largest_matrix = std::max(product.largest_matrix, row.count());
  if (!row.packing.is_dense()) product.packing = row.packing.kind;
  if (!row.low_rank.exists()) return;
  ++product.num_low_rank;
  product.rank += table.row(row.low_rank.a).shape.front();
  product.has_magnitudes = product.has_magnitudes || row.low_rank.magnitude >= 0;
}

/// Takes the matrices of a block in their order.
class Matrices {
 public:
  Matrices(const model::ParameterTable& table, const std::vector<const Parameter*>& rows)
      : table_(table), rows_(rows) {}

  /// The next ones, until they have `num_outputs` together.
  Product take(std::int64_t num_inputs, std::int64_t num_outputs) {
    Product product;
    while (next_ < rows_.size() && product.num_outputs < num_outputs)
      add_matrix(product, table_, *rows_[next_++]);
    if (product.num_outputs == 0) {
      product.num_inputs = num_inputs;
      product.num_outputs = num_outputs;
    }
    return product;
  }

 private:
  const model::ParameterTable& table_;
  const std::vector<const Parameter*>& rows_;
  std::size_t next_ = 0;
};

/// Gate and up of one expert are read together; of experts in one tensor all are.
Product largest_of_experts(const model::ParameterTable& table,
                           const std::vector<const Parameter*>& rows) {
  Product largest;
  for (const Parameter* row : rows) {
    Product one;
    add_matrix(one, table, *row);
    if (row->shape.size() == 2) one.num_outputs *= 2;
    if (one.num_inputs * one.num_outputs > largest.num_inputs * largest.num_outputs) largest = one;
  }
  return largest;
}

}  // namespace

std::vector<BlockProducts> block_products(const model::ParameterTable& table,
                                          const model::Architecture& a) {
  const auto num_layers = static_cast<std::size_t>(a.num_layers);
  std::vector<std::vector<const Parameter*>> linear(num_layers), experts(num_layers);
  for (const Parameter& row : table.rows) {
    const auto layer = static_cast<std::size_t>(row.stage - 1);
    if (row.stage < 1 || layer >= num_layers) continue;
    if (row.role == Role::linear) linear[layer].push_back(&row);
    if (row.role == Role::expert) experts[layer].push_back(&row);
  }
  const std::int64_t queries = a.num_heads * a.head_size;
  std::vector<BlockProducts> blocks;
  for (std::size_t i = 0; i < num_layers; ++i) {
    const bool has_experts = a.layer(static_cast<std::int64_t>(i)).has_experts;
    const std::int64_t width = has_experts ? a.experts.d_shared : a.d_ff;
    Matrices matrices(table, linear[i]);
    BlockProducts& block = blocks.emplace_back();
    block.qkv = matrices.take(a.d_model, queries + 2 * a.num_kv_heads * a.head_size);
    block.attention_out = matrices.take(queries, a.d_model);
    block.gate_up = matrices.take(a.d_model, 2 * width);
    block.down = matrices.take(width, a.d_model);
    block.expert = largest_of_experts(table, experts[i]);
  }
  return blocks;
}

}  // namespace finetune::plan
