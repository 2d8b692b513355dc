// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/overlap.hpp"

#include "core/error.hpp"

namespace finetune::checkpoint {

Overlap::Overlap(const core::Box& stored, const core::Box& wanted) {
  const std::size_t rank = stored.extent.size();
  core::check(rank == wanted.extent.size() && rank <= largest_rank,
              "two boxes of a tensor have its dims");
  std::array<std::int64_t, largest_rank> stored_step{};
  std::array<std::int64_t, largest_rank> wanted_step{};
  std::int64_t stored_elements = 1;
  std::int64_t wanted_elements = 1;
  for (std::size_t d = rank; d-- > 0;) {
    stored_step[d] = stored_elements;
    wanted_step[d] = wanted_elements;
    stored_elements *= stored.extent[d];
    wanted_elements *= wanted.extent[d];
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t begin = std::max(stored.begin[d], wanted.begin[d]);
    const std::int64_t end = std::min(stored.begin[d] + stored.extent[d],  //
                                      wanted.begin[d] + wanted.extent[d]);
    const std::int64_t size = std::max<std::int64_t>(end - begin, 0);
    count_ *= size;
    stored_begin_ += (begin - stored.begin[d]) * stored_step[d];
    wanted_begin_ += (begin - wanted.begin[d]) * wanted_step[d];
    if (size != 1) add_inner({size, stored_step[d], wanted_step[d]});
  }
  const Dim* last = num_dims_ > 0 ? &dims_[num_dims_ - 1] : nullptr;
  if (last == nullptr || last->stored_step != 1 || last->wanted_step != 1) add_inner({1, 1, 1});
}

/// A dim that both boxes hold whole continues the one around it.
void Overlap::add_inner(const Dim& dim) {
  if (num_dims_ > 0) {
    Dim& outer = dims_[num_dims_ - 1];
    if (outer.stored_step == dim.size * dim.stored_step &&
        outer.wanted_step == dim.size * dim.wanted_step) {
      outer = {outer.size * dim.size, dim.stored_step, dim.wanted_step};
      return;
    }
  }
  dims_[num_dims_++] = dim;
}

std::int64_t Overlap::place(std::int64_t i, std::int64_t Dim::*step, std::int64_t begin) const {
  for (std::size_t d = num_dims_; d-- > 0;) {
    begin += i % dims_[d].size * (dims_[d].*step);
    i /= dims_[d].size;
  }
  return begin;
}

std::int64_t Overlap::before(std::int64_t distance, std::int64_t Dim::*step) const {
  if (distance <= 0 || count_ == 0) return 0;
  std::int64_t elements = 0;
  std::int64_t inner = count_;  // elements of one index of the dim
  for (std::size_t d = 0; d < num_dims_; ++d) {
    const Dim& dim = dims_[d];
    inner /= dim.size;
    const std::int64_t index = distance / (dim.*step);
    // Behind the last index of a dim there are no more elements of the dims within.
    if (index >= dim.size) return elements + dim.size * inner;
    elements += index * inner;
    distance -= index * (dim.*step);
  }
  return elements;
}

}  // namespace finetune::checkpoint
