// SPDX-License-Identifier: Apache-2.0
#include "data/steps/detail/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/random.hpp"
#include "core/text.hpp"
#include "data/steps/detail/block_shuffle.hpp"

namespace finetune::data {
namespace {

constexpr double most_draws = 9007199254740992;  // 2^53

/// Passes of one set are told apart by their number, sets by the upper bits.
std::uint64_t pass_stream(std::size_t set, std::int64_t pass) {
  return static_cast<std::uint64_t>(set) << 32 | static_cast<std::uint64_t>(pass);
}

}  // namespace

Sampler::Sampler(const std::vector<SampledSet>& sets, std::int64_t global_batch, std::uint64_t seed,
                 SampleOrder order, std::int64_t block)
    : global_batch_(global_batch), seed_(seed), order_(order), block_(block) {
  std::int64_t first_index = 0;
  for (const SampledSet& set : sets) {
    core::check(set.size > 0 && set.weight > 0, "a sampler has sequences to draw");
    const double exact_draws = set.weight * static_cast<double>(set.size);
    // Beyond it a real number does not count every draw, and soon no integer does.
    if (exact_draws + static_cast<double>(epoch_size_) >= most_draws) {
      core::fail(
          core::ErrorKind::deck,
          {"data.weights", fmt::format("an epoch has more than {:.0f} sequences", most_draws),
           fmt::format("a weight of {} is as many passes over {} sequences", set.weight,
                       core::with_commas(set.size)),
           "Make the weights smaller."});
    }
    const auto draws = std::max<std::int64_t>(1, std::llround(exact_draws));
    sets_.push_back({first_index, set.size, epoch_size_, draws});
    first_index += set.size;
    epoch_size_ += draws;
  }
  core::check(epoch_size_ > 0 && global_batch > 0, "a sampler has samples and a batch size");
}

double Sampler::epochs_after(std::int64_t steps) const {
  const auto done = static_cast<double>(steps % steps_per_epoch()) *
                    static_cast<double>(global_batch_) / static_cast<double>(epoch_size_);
  return static_cast<double>(epoch(steps)) + done;
}

bool Sampler::ends_interval(double epochs, std::int64_t steps) const {
  if (epochs <= 0) return false;
  // So that a third of an epoch is over after the step that ends it, however it is rounded.
  constexpr double rounding = 1e-9;
  const auto intervals = [&](std::int64_t after) {
    return std::floor(epochs_after(after) / epochs + rounding);
  };
  return intervals(steps) > intervals(steps - 1);
}

std::int64_t Sampler::sequence(std::int64_t epoch, std::int64_t draw) const {
  const auto set = std::ranges::upper_bound(sets_, draw, {}, &Set::first_draw) -
                   1;  // the last that begins there
  // The set's draws of all epochs are one run of passes over it, which epochs cut into pieces.
  const std::int64_t run = epoch * set->draws + (draw - set->first_draw);
  const std::int64_t pass = run / set->size;
  std::int64_t index = run % set->size;
  // Whole passes are in an order of their own already; which part of a pass comes first is not.
  const bool is_part = set->draws % set->size != 0;
  if (order_ == SampleOrder::shuffled && is_part && block_ > 0) {
    // A set has fewer than 2^31 passes and there are fewer sets, or the epoch could not be counted.
    index = BlockShuffle(seed_ + 1 + static_cast<std::uint64_t>(set - sets_.begin()), pass,
                         set->size, block_)(index);
  } else if (order_ == SampleOrder::shuffled && is_part) {
    const core::RandomKey key(seed_, core::RandomUse::passes,
                              pass_stream(static_cast<std::size_t>(set - sets_.begin()), pass));
    index = core::Permutation(key, set->size)(index);
  }
  return set->first_index + index;
}

std::vector<std::int64_t> Sampler::batch(std::int64_t step) const {
  core::check(step >= 0, "steps count from 0");
  const std::int64_t begin = step % steps_per_epoch() * global_batch_;
  const std::int64_t end = begin + std::min(global_batch_, epoch_size_ - begin);
  const core::RandomKey key(seed_, core::RandomUse::shuffle,
                            static_cast<std::uint64_t>(epoch(step)));
  const core::Permutation permutation(key, epoch_size_);
  const BlockShuffle by_blocks(seed_, epoch(step), epoch_size_, std::max<std::int64_t>(1, block_));
  const auto shuffled = [&](std::int64_t draw) {
    return block_ > 0 ? by_blocks(draw) : permutation(draw);
  };
  std::vector<std::int64_t> sequences;
  sequences.reserve(static_cast<std::size_t>(end - begin));
  for (std::int64_t draw = begin; draw < end; ++draw) {
    sequences.push_back(
        sequence(epoch(step), order_ == SampleOrder::shuffled ? shuffled(draw) : draw));
  }
  return sequences;
}

}  // namespace finetune::data
