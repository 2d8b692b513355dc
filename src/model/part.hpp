#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank of tensor and expert parallelism holds of a model: a table of its own, whose rows
// know where in the logical tensors they lie.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/parameter_table.hpp"

namespace finetune::model {

/// A rank's place where matrices and experts are shared out.
struct PartPlace {
  std::int64_t tp = 1;  ///< ranks that share matrices
  std::int64_t i_tp = 0;
  std::int64_t ep = 1;  ///< ranks that share experts
  std::int64_t i_ep = 0;

  bool is_whole() const { return tp == 1 && ep == 1; }
};

/// Indices [first, last).
struct IndexRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count() const { return last - first; }
};

/// What rank `i` of `n` holds of such a matrix, and who else does.
struct HeldPieces {
  IndexRange indices;
  std::int64_t num_holders = 1;
  std::int64_t holder = 0;
};
HeldPieces held_pieces(const Pieces& pieces, std::int64_t n, std::int64_t i);

/// The experts of a layer with `num` of them that a rank holds: all of their own matrices, where
/// they are separate tensors, or what `tp` splits of them.
IndexRange held_experts(std::int64_t num, const PartPlace& place);
/// The same where one tensor holds all experts of a layer, which tp too shares out by experts.
IndexRange held_fused_experts(std::int64_t num, const PartPlace& place);

/// What the rank at `place` holds: a table of the same rows, each with the shape of the part and
/// with `held` (also where it is whole, for its holders). A row that it has nothing of has 0 as its
/// first dim. With place.is_whole(): `table` as it is. Precondition: `why_not` of place.tp is
/// empty.
ParameterTable part_of(const ParameterTable& table, const PartPlace& place);

/// What the rank at `place` holds of one row of a whole table.
Parameter part_of(const Parameter& row, const PartPlace& place);
/// Whether some of `tp` ranks hold the same elements of a row.
bool is_shared(const Parameter& row, std::int64_t tp);
/// The logical tensor of a row of a rank's own table.
Parameter whole_of(const Parameter& row);

/// Why `tp` ranks cannot share the matrices of `table`, naming what does not divide; empty: they
/// can.
std::string why_not(const ParameterTable& table, std::int64_t tp);

/// Whether it has layers that remember, whose samples ranks cannot cut.
bool remembers(const ParameterTable& table);

/// Heads that the rank at `place` computes of such a layer.
struct HeldHeads {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
};
HeldHeads held_heads(std::int64_t num_heads, std::int64_t num_kv_heads, const PartPlace& place);

/// Calls f(first element of the logical tensor, elements) for the runs that make up elements
/// [first, first + count) of what a rank holds of it, in order.
void for_each_run(const Parameter& row, std::int64_t first, std::int64_t count,
                  const std::function<void(std::int64_t logical, std::int64_t count)>& f);

/// Elements [first, first + count) of what a rank holds, as slices of boxes of the logical tensor,
/// in order; `dtype` as given. Where nothing is split: one slice of the whole.
std::vector<core::TensorSlice> logical_slices(const Parameter& row, core::DType dtype,
                                              std::int64_t first, std::int64_t count);

}  // namespace finetune::model
