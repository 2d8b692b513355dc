// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/buffer_pool.hpp"

#include <algorithm>
#include <utility>

#include "plan/memory/buffers.hpp"

namespace finetune::shard {
at::Tensor BufferPool::take(std::int64_t count) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const bool fits = plan::is_used_for(it->numel(), count);
    if (fits && (best == free_.end() || it->numel() < best->numel())) best = it;
  }
  if (best == free_.end()) {
    const at::Tensor made = at::empty({plan::pooled_size(count)}, options_);
    remembered_.add(made);
    return made.narrow(0, 0, count);
  }
  at::Tensor whole = std::move(*best);
  free_.erase(best);
  return whole.narrow(0, 0, count);
}

void BufferPool::put(at::Tensor buffer) {
  // A narrowed buffer still owns the whole storage: look at all of it again.
  const auto elements =
      static_cast<std::int64_t>(buffer.storage().nbytes() / buffer.element_size());
  free_.push_back(buffer.as_strided({elements}, {1}, 0));
}

}  // namespace finetune::shard
