#pragma once
// SPDX-License-Identifier: Apache-2.0
// Gradients of what several ranks of tensor parallelism hold: each has a term of them.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "model/parameter_table.hpp"
#include "plan/layout/shard_map.hpp"

namespace finetune::shard {

/// The rows of each unit that several ranks of `tp` hold, whole or the same part. What a rank
/// computes with them is of its own tokens, heads or channels, so their gradient is the sum of the
/// ranks' terms: norms, routers, parts of adapters, and keys and values of fewer heads than ranks.
class SharedRows {
 public:
  /// `tp` may be null: nothing is shared. `table` is the rank's own.
  SharedRows(const model::ParameterTable& table, const plan::ShardMap& map,
             std::shared_ptr<comm::Group> tp);

  /// Sums what is shared of a unit's gradients [flat buffer], in fp32, in place. Collective on tp.
  void sum(int unit, const at::Tensor& gradients) const;

 private:
  /// Elements of a unit's buffer, and where they are in what travels.
  struct Run {
    std::int64_t first = 0;  ///< of the buffer
    std::int64_t count = 0;
    std::int64_t on_wire = 0;
  };
  struct UnitRuns {
    std::vector<Run> runs;
    std::int64_t wire_count = 0;  ///< the same on every rank of tp
    bool has_gaps = false;        ///< this rank writes less than that
  };

  void add_row(const model::Parameter& row, std::int64_t offset, UnitRuns& unit) const;

  std::shared_ptr<comm::Group> tp_;
  std::vector<UnitRuns> units_;
};

}  // namespace finetune::shard
