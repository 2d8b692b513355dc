// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/detail/forward.hpp"

#include <algorithm>

#include "plan/memory/detail/ops_cost.hpp"

namespace finetune::plan {

model::BytesHeld forward_bytes(const PlanInput& request, const model::ParameterTable& table,
                               std::int64_t tokens) {
  PlanInput pass = request;
  pass.micro_batch = 1;
  pass.max_seq_length = tokens;
  const std::int64_t sample = request.sample_tokens > 0 ? request.sample_tokens : tokens;
  pass.sample_tokens = std::min(tokens, sample);
  const OpsCost cost(pass, table, own_passes(pass));
  model::BytesHeld worst;
  for (std::int64_t i = 0; i < cost.num_blocks(); ++i)
    worst = larger(worst, cost.block(i).tape.worst_without_backward());
  for (int slot = 0; slot < std::ssize(cost.sides().channels); ++slot)
    worst = worst + cost.side_bytes(slot);
  // Whoever runs a block holds what it reads until it has given what it writes.
  const std::int64_t sharing = request.parallel.num_tp() * request.parallel.num_cp();
  return worst + 2 * (tokens + sharing - 1) / sharing * request.architecture.d_model *
                     core::size_bytes(request.numbers.compute);
}

}  // namespace finetune::plan
