#pragma once
// SPDX-License-Identifier: Apache-2.0
// The products of a block as the rows of a table make them: what is trained of each, what is on top
// it, and what is unpacked for it.

#include <cstdint>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"

namespace finetune::plan {

/// A product with a range of neighbouring matrices, as model::Projection makes it.
struct Product {
  bool is_trained = true;
  std::int64_t rank = 0;          ///< of the low-rank parts of all its matrices together
  std::int64_t num_low_rank = 0;  ///< how many of its matrices have such a part
  bool has_magnitudes = false;
  std::int64_t num_inputs = 0;
  std::int64_t num_outputs = 0;
  model::Packing::Kind packing = model::Packing::Kind::dense;
  std::int64_t largest_matrix = 0;  ///< elements

  bool is_packed() const { return packing != model::Packing::Kind::dense; }
  /// Whether backward needs its input.
  bool needs_input() const { return is_trained || rank > 0; }
};

struct BlockProducts {
  Product qkv;
  Product attention_out;
  Product gate_up;  ///< of a shared expert where the layer has experts
  Product down;
  Product expert;  ///< the largest product of one expert
};

/// By block. What a table does not name is trained as a whole.
std::vector<BlockProducts> block_products(const model::ParameterTable& table,
                                          const model::Architecture& architecture);

}  // namespace finetune::plan
