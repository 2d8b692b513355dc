// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_adamw8bit.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/detail/device_constants.hpp"

namespace finetune::kernels::composed {
namespace {

/// [256] in the order of the codes.
at::Tensor levels_of(Moment moment, const at::Tensor& like) {
  return constant_on_device_of(like, moment_levels(moment));
}

/// Levels in rising order: which codes they have, and what lies in the middle between two.
struct RisingLevels {
  std::array<std::int64_t, 256> codes{};
  std::array<float, 255> middles{};
};

RisingLevels sort_levels(Moment moment) {
  const auto levels = moment_levels(moment);
  RisingLevels rising;
  std::iota(rising.codes.begin(), rising.codes.end(), 0);
  const auto level = [&](std::int64_t code) { return levels[static_cast<std::size_t>(code)]; };
  std::ranges::stable_sort(rising.codes, {}, level);
  for (std::size_t i = 0; i < rising.middles.size(); ++i)
    rising.middles[i] = (level(rising.codes[i]) + level(rising.codes[i + 1])) / 2;
  return rising;
}

const RisingLevels& rising_levels(Moment moment) {
  static const RisingLevels first = sort_levels(Moment::first);
  static const RisingLevels second = sort_levels(Moment::second);
  return moment == Moment::first ? first : second;
}

}  // namespace

at::Tensor decoded(Moment moment, const at::Tensor& codes, const at::Tensor& scales) {
  const at::Tensor values = levels_of(moment, codes).index_select(0, codes.to(at::kInt));
  return values.mul_(scales.repeat_interleave(moment_block).narrow(0, 0, codes.size(0)));
}

void encode(Moment moment, const at::Tensor& values, const at::Tensor& codes,
            const at::Tensor& scales) {
  const std::int64_t count = values.size(0), padding = scales.size(0) * moment_block - count;
  const at::Tensor blocks = at::constant_pad_nd(values, {0, padding}).view({-1, moment_block});
  at::Tensor largest = blocks.abs().amax(1);
  largest = largest.masked_fill(largest < 0x1p-126, 0);
  scales.copy_(largest);
  const at::Tensor reciprocal = largest.reciprocal().masked_fill_(largest == 0, 0);
  const at::Tensor scaled = (blocks * reciprocal.unsqueeze(1)).flatten().narrow(0, 0, count);
  const RisingLevels& rising = rising_levels(moment);
  const at::Tensor order =
      constant_on_device_of(codes, std::span<const std::int64_t>(rising.codes));
  const at::Tensor middles = constant_on_device_of(codes, std::span<const float>(rising.middles));
  at::Tensor nearest = order.index_select(0, at::bucketize(scaled, middles));
  if (moment == Moment::second) nearest = nearest.masked_fill((nearest == 0) & (scaled > 0), 1);
  codes.copy_(nearest);
}

void adamw8bit_(at::Tensor& weight, const Moments8bit& moments, const at::Tensor& gradient,
                const AdamWNumbers& numbers, std::span<const DecayRun> runs) {
  at::Tensor m = decoded(Moment::first, moments.exp_avg, moments.exp_avg_scale);
  at::Tensor v = decoded(Moment::second, moments.exp_avg_sq, moments.exp_avg_sq_scale);
  const at::Tensor in_no_run = at::ones_like(m, at::kBool);
  for (const DecayRun& run : runs) {
    if (run.count == 0) continue;
    AdamWNumbers by = numbers;
    by.weight_decay = run.weight_decay;
    by.index = run.index;
    at::Tensor w = weight.narrow(0, run.first, run.count);
    at::Tensor m_run = m.narrow(0, run.first, run.count), v_run = v.narrow(0, run.first, run.count);
    adamw_(w, m_run, v_run, gradient.narrow(0, run.first, run.count), by);
    in_no_run.narrow(0, run.first, run.count).fill_(false);
  }
  m.masked_fill_(in_no_run, 0);
  v.masked_fill_(in_no_run, 0);
  encode(Moment::first, m, moments.exp_avg, moments.exp_avg_scale);
  encode(Moment::second, v, moments.exp_avg_sq, moments.exp_avg_sq_scale);
}

at::Tensor moment_tables_on_device_of(const at::Tensor& like) {
  return constant_on_device_of(like, moment_tables());
}

}  // namespace finetune::kernels::composed
