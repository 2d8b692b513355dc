// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw8bit.hpp"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "core/error.hpp"
#include "kernels/detail/adamw8bit_team.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/moment_encode.hpp"
#include "kernels/detail/moment_lookup.hpp"
#include "kernels/detail/moment_table.hpp"
#include "kernels/detail/rounding_bits.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {
namespace {

using of_8_bits::Coefficients, of_8_bits::encode_first, of_8_bits::encode_second;

constexpr std::int64_t grain_blocks = grain_elements / moment_block;

struct Quantize {
  const MomentTable* table;
  Moment moment;
  const float* values;
  std::uint8_t* codes;
  float* scales;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * moment_block, left = count - begin;
      const std::int64_t length = left < moment_block ? left : moment_block;
      scales[block] = moment == Moment::first
                          ? encode_first(*table, values + begin, length, codes + begin)
                          : encode_second(*table, values + begin, length, codes + begin);
    }
  }
};

struct Dequantize {
  const MomentTable* table;
  const std::uint8_t* codes;
  const float* scales;
  float* values;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * moment_block, left = count - begin;
      const std::int64_t end = begin + (left < moment_block ? left : moment_block);
      for (std::int64_t i = begin; i < end; ++i)
        values[i] = table->by_code[codes[i]] * scales[block];
    }
  }
};

/// A run that ends before `end`; its weights are multiplied by `keep` first.
struct Run {
  std::int64_t first, end;
  float keep;
  std::int64_t index;
};

template <class Weight, class Copy, bool is_stochastic>
struct Step {
  const MomentTable *table1, *table2;
  Weight* weight;
  std::uint8_t *exp_avg, *exp_avg_sq;
  float *scale1, *scale2;
  const float* gradient;
  Copy* copy;  // or null
  const Run* runs;
  std::int64_t num_runs, count;
  Coefficients by;
  RoundingBits rounding;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    std::int64_t run = of_8_bits::first_run(num_runs, first * moment_block,
                                            [&](std::int64_t r) { return runs[r].end; });
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * moment_block, left = count - begin;
      const std::int64_t end = begin + (left < moment_block ? left : moment_block);
      float m[moment_block] = {}, v[moment_block] = {};
      while (run < num_runs && runs[run].end <= begin)
        ++run;
      for (std::int64_t r = run; r < num_runs && runs[r].first < end; ++r) {
        const std::int64_t from = runs[r].first > begin ? runs[r].first : begin;
        const std::int64_t to = runs[r].end < end ? runs[r].end : end;
        update(block, from, to, runs[r], m + (from - begin), v + (from - begin));
      }
      scale1[block] = encode_first(*table1, m, end - begin, exp_avg + begin);
      scale2[block] = encode_second(*table2, v, end - begin, exp_avg_sq + begin);
    }
  }

  /// Elements [from, to) of a block; m and v receive their moments.
  KOKKOS_INLINE_FUNCTION void update(std::int64_t block, std::int64_t from, std::int64_t to,
                                     const Run& run, float* m, float* v) const {
    const float unit1 = scale1[block], unit2 = scale2[block];
    const std::int64_t length = to - from;
    float levels1[moment_block], levels2[moment_block], updated[moment_block];
    look_up_levels(*table1, exp_avg + from, length, levels1);
    look_up_levels(*table2, exp_avg_sq + from, length, levels2);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i) {
      const float g = gradient[from + i] * by.gradient_scale;
      m[i] = by.first(levels1[i] * unit1, g);
      v[i] = by.second(levels2[i] * unit2, g);
      updated[i] = by.weight(to_float(weight[from + i]), run.keep, m[i], v[i]);
      if constexpr (!is_stochastic) weight[from + i] = round_to<Weight>(updated[i]);
    }
    if constexpr (is_stochastic) round(from, length, run.index + (from - run.first), updated);
    if (copy == nullptr) return;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i)
      copy[from + i] = round_to<Copy>(updated[i]);
  }

  /// Stores weights from `from` on, and puts what they became into `updated`.
  KOKKOS_INLINE_FUNCTION void round(std::int64_t from, std::int64_t length, std::int64_t index,
                                    float* updated) const {
    std::uint32_t random[moment_block];
    rounding.draw(index, length, random);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i) {
      weight[from + i] = stored_as<Weight, true>(updated[i], bits_for_weight(random[i]));
      updated[i] = to_float(weight[from + i]);
    }
  }
};

template <class Weight>
Coefficients numbers(const AdamW8bitStep<Weight>& args) {
  const double correction1 = 1.0 - std::pow(args.beta1, static_cast<double>(args.step));
  const double correction2 = 1.0 - std::pow(args.beta2, static_cast<double>(args.step));
  const auto single = [](double value) { return static_cast<float>(value); };
  return {.gradient_scale = args.gradient_scale,
          .lerp1 = single(1.0 - args.beta1),
          .beta2 = single(args.beta2),
          .rest2 = single(1.0 - args.beta2),
          .root_correction2 = single(std::sqrt(correction2)),
          .epsilon = single(args.epsilon),
          .step_size = single(args.lr / correction1)};
}

std::int64_t num_blocks(std::int64_t count) {
  return (count + moment_block - 1) / moment_block;
}

template <class Weight>
RoundingBits rounding_of(const AdamW8bitStep<Weight>& args) {
  return args.rounding ? RoundingBits(*args.rounding) : RoundingBits();
}

template <bool is_stochastic, class Weight, class Copy>
void start_on_gpu(const AdamW8bitStep<Weight>& args, std::span<Copy> copy, const Place& place) {
  using Row = of_8_bits::StepOfTeam<Weight, Copy, is_stochastic>;
  core::check(args.tables.size() == moment_tables().size(), "adamw8bit: a GPU has the tables");
  const auto* tables = reinterpret_cast<const MomentTable*>(args.tables.data());
  const std::int64_t count = std::ssize(args.weight);
  const Row row{tables,
                tables + 1,
                args.weight.data(),
                args.exp_avg.data(),
                args.exp_avg_sq.data(),
                args.exp_avg_scale.data(),
                args.exp_avg_sq_scale.data(),
                args.gradient.data(),
                copy.empty() ? nullptr : copy.data(),
                args.runs.data(),
                std::ssize(args.runs),
                count,
                args.lr,
                numbers(args),
                rounding_of(args)};
  Teams<Row>{num_blocks(count), row}.start(place);
}

template <bool is_stochastic, class Weight, class Copy>
void launch_adamw8bit(const AdamW8bitStep<Weight>& args, std::span<Copy> copy, const Place& place) {
  if (place.is_gpu()) return start_on_gpu<is_stochastic>(args, copy, place);
  const Scratch<Run> runs(std::ssize(args.runs));
  for (std::size_t i = 0; i < args.runs.size(); ++i) {
    const DecayRun& run = args.runs[i];
    runs.data()[i] = {run.first, run.first + run.count,
                      of_8_bits::kept_part(args.lr, run.weight_decay), run.index};
  }
  launch(num_blocks(std::ssize(args.weight)), grain_blocks,
         Step<Weight, Copy, is_stochastic>{
             &moment_table(Moment::first), &moment_table(Moment::second), args.weight.data(),
             args.exp_avg.data(), args.exp_avg_sq.data(), args.exp_avg_scale.data(),
             args.exp_avg_sq_scale.data(), args.gradient.data(),
             copy.empty() ? nullptr : copy.data(), runs.data(), std::ssize(args.runs),
             std::ssize(args.weight), numbers(args), rounding_of(args)});
}

template <class Weight, class Copy>
void step(const AdamW8bitStep<Weight>& args, std::span<Copy> copy, const Place& place) {
  if constexpr (std::is_same_v<Weight, bf16>) {
    if (args.rounding) return launch_adamw8bit<true>(args, copy, place);
  }
  launch_adamw8bit<false>(args, copy, place);
}

void check_runs(std::span<const DecayRun> runs, std::int64_t count) {
  std::int64_t end = 0;
  for (const DecayRun& run : runs) {
    core::check(run.first >= end && run.count >= 0 && run.count <= count - run.first,
                "adamw8bit: runs lie in the piece, one behind the other");
    end = run.first + run.count;
  }
}

}  // namespace

void quantize_moment(Moment moment, std::span<const float> values, std::span<std::uint8_t> codes,
                     std::span<float> scales) {
  core::check(codes.size() == values.size() && std::ssize(scales) == num_blocks(std::ssize(values)),
              "adamw8bit: one code a number, one scale a block");
  launch(std::ssize(scales), grain_blocks,
         Quantize{&moment_table(moment), moment, values.data(), codes.data(), scales.data(),
                  std::ssize(values)});
}

void dequantize_moment(Moment moment, std::span<const std::uint8_t> codes,
                       std::span<const float> scales, std::span<float> values) {
  core::check(codes.size() == values.size() && std::ssize(scales) == num_blocks(std::ssize(values)),
              "adamw8bit: one code a number, one scale a block");
  launch(std::ssize(scales), grain_blocks,
         Dequantize{&moment_table(moment), codes.data(), scales.data(), values.data(),
                    std::ssize(values)});
}

template <class Weight>
void adamw8bit(const AdamW8bitStep<Weight>& args, const Place& place) {
  const std::size_t count = args.weight.size();
  const auto blocks = static_cast<std::size_t>(num_blocks(std::ssize(args.weight)));
  core::check(args.exp_avg.size() == count && args.exp_avg_sq.size() == count &&
                  args.gradient.size() == count,
              "adamw8bit: weight, moments and gradient have the same size");
  core::check(args.exp_avg_scale.size() == blocks && args.exp_avg_sq_scale.size() == blocks,
              "adamw8bit: one scale a block");
  core::check(args.weight_bf16.empty() || args.weight_bf16.size() == count,
              "adamw8bit: the bf16 copy has the size of the weight");
  core::check(args.weight_f16.empty() || args.weight_f16.size() == count,
              "adamw8bit: the f16 copy has the size of the weight");
  core::check(args.weight_bf16.empty() || args.weight_f16.empty(), "adamw8bit: one copy at most");
  core::check(args.step >= 1, "adamw8bit: steps count from 1");
  if (!place.is_gpu()) check_runs(args.runs, std::ssize(args.weight));
  if (args.weight_f16.empty()) {
    step(args, args.weight_bf16, place);
  } else {
    step(args, args.weight_f16, place);
  }
}

template void adamw8bit(const AdamW8bitStep<float>&, const Place&);
template void adamw8bit(const AdamW8bitStep<bf16>&, const Place&);

}  // namespace finetune::kernels
