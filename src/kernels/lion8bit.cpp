// SPDX-License-Identifier: Apache-2.0
#include "kernels/lion8bit.hpp"

#include <iterator>
#include <type_traits>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/moment_encode.hpp"
#include "kernels/detail/moment_lookup.hpp"
#include "kernels/detail/moment_table.hpp"
#include "kernels/detail/rounding_bits.hpp"
#include "kernels/detail/scratch.hpp"
#include "kernels/detail/update_loop.hpp"

namespace finetune::kernels {
namespace {

constexpr std::int64_t grain_blocks = grain_elements / moment_block;

/// A run that ends before `end`; its weights are multiplied by `keep` first and move by `lr`.
struct Run {
  std::int64_t first, end;
  float keep, lr;
  std::int64_t index;
};

struct LionNumbers {
  float gradient_scale, beta1, rest1, beta2, rest2;
};

template <class Weight, class Copy, bool is_stochastic>
struct Lion8bit {
  const MomentTable* table;
  Weight* weight;
  std::uint8_t* exp_avg;
  float* scale;
  const float* gradient;
  Copy* copy;  // or null
  const Run* runs;
  std::int64_t num_runs, count;
  LionNumbers by;
  RoundingBits rounding;

  void operator()(std::int64_t first, std::int64_t last) const {
    std::int64_t run = of_8_bits::first_run(num_runs, first * moment_block,
                                            [&](std::int64_t r) { return runs[r].end; });
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * moment_block, left = count - begin;
      const std::int64_t end = begin + (left < moment_block ? left : moment_block);
      float m[moment_block] = {};
      while (run < num_runs && runs[run].end <= begin)
        ++run;
      for (std::int64_t r = run; r < num_runs && runs[r].first < end; ++r) {
        const std::int64_t from = runs[r].first > begin ? runs[r].first : begin;
        const std::int64_t to = runs[r].end < end ? runs[r].end : end;
        update(block, from, to, runs[r], m + (from - begin));
      }
      scale[block] = of_8_bits::encode_first(*table, m, end - begin, exp_avg + begin);
    }
  }

  /// Elements [from, to) of a block; m receives their moments.
  void update(std::int64_t block, std::int64_t from, std::int64_t to, const Run& run,
              float* m) const {
    const float unit = scale[block];
    const std::int64_t length = to - from;
    float levels[moment_block], updated[moment_block];
    look_up_levels(*table, exp_avg + from, length, levels);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i) {
      const float g = gradient[from + i] * by.gradient_scale;
      const float before = levels[i] * unit;
      const float direction = before * by.beta1 + by.rest1 * g;
      const float sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : 0.0f;
      m[i] = before * by.beta2 + by.rest2 * g;
      updated[i] = to_float(weight[from + i]) * run.keep - run.lr * sign;
      if constexpr (!is_stochastic) weight[from + i] = round_to<Weight>(updated[i]);
    }
    if constexpr (is_stochastic) round(from, length, run.index + (from - run.first), updated);
    if (copy == nullptr) return;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i)
      copy[from + i] = round_to<Copy>(updated[i]);
  }

  /// Stores weights from `from` on, and puts what they became into `updated`.
  void round(std::int64_t from, std::int64_t length, std::int64_t index, float* updated) const {
    std::uint32_t random[moment_block];
    rounding.draw(index, length, random);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i) {
      weight[from + i] = stored_as<Weight, true>(updated[i], bits_for_weight(random[i]));
      updated[i] = to_float(weight[from + i]);
    }
  }
};

std::int64_t num_blocks(std::int64_t count) {
  return (count + moment_block - 1) / moment_block;
}

template <bool is_stochastic, class Weight, class Copy>
void launch_lion8bit(const Lion8bitStep<Weight>& args, std::span<Copy> copy) {
  const auto single = [](double value) { return static_cast<float>(value); };
  const Scratch<Run> runs(std::ssize(args.runs));
  for (std::size_t i = 0; i < args.runs.size(); ++i) {
    const LionRun& run = args.runs[i];
    const double lr = args.lr * run.lr_ratio;
    runs.data()[i] = {run.first, run.first + run.count, single(1.0 - lr * run.weight_decay),
                      single(lr), run.index};
  }
  const LionNumbers numbers{args.gradient_scale, single(args.beta1), single(1.0 - args.beta1),
                            single(args.beta2), single(1.0 - args.beta2)};
  launch(num_blocks(std::ssize(args.weight)), grain_blocks,
         Lion8bit<Weight, Copy, is_stochastic>{
             &moment_table(Moment::first), args.weight.data(), args.exp_avg.data(),
             args.exp_avg_scale.data(), args.gradient.data(), copy.empty() ? nullptr : copy.data(),
             runs.data(), std::ssize(args.runs), std::ssize(args.weight), numbers,
             args.rounding ? RoundingBits(*args.rounding) : RoundingBits()});
}

template <class Weight, class Copy>
void step(const Lion8bitStep<Weight>& args, std::span<Copy> copy) {
  if constexpr (std::is_same_v<Weight, bf16>) {
    if (args.rounding) return launch_lion8bit<true>(args, copy);
  }
  launch_lion8bit<false>(args, copy);
}

}  // namespace

template <class Weight>
void lion8bit(const Lion8bitStep<Weight>& args) {
  const std::size_t count = args.weight.size();
  core::check(args.exp_avg.size() == count && args.gradient.size() == count,
              "lion8bit: weight, moment and gradient have the same size");
  core::check(std::ssize(args.exp_avg_scale) == num_blocks(std::ssize(args.weight)),
              "lion8bit: one scale a block");
  std::int64_t end = 0;
  for (const LionRun& run : args.runs) {
    core::check(
        run.first >= end && run.count >= 0 && run.count <= std::ssize(args.weight) - run.first,
        "lion8bit: runs lie in the piece, one behind the other");
    end = run.first + run.count;
  }
  with_copy(args, [&](auto copy) { step(args, copy); });
}

template void lion8bit(const Lion8bitStep<float>&);
template void lion8bit(const Lion8bitStep<bf16>&);

}  // namespace finetune::kernels
