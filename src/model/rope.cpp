// SPDX-License-Identifier: Apache-2.0
#include "model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.hpp"
#include "model/upload.hpp"

namespace finetune::model {
namespace {

/// Long wavelengths are divided by the factor, short ones stay, those between are blended.
float llama3_scaled(float frequency, const RopeScaling& scaling) {
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  const auto original = static_cast<float>(scaling.original_max_positions);
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  if (wavelength < original / high) return frequency;
  if (wavelength >= original / low) return frequency / factor;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

/// Pairs of channels up to `first` stay, from `last` on they are divided by the factor.
struct YarnBounds {
  double first = 0, last = 0;
};

YarnBounds yarn_bounds(const Positions& positions, std::int64_t channels) {
  const RopeScaling& scaling = positions.scaling;
  const auto size = static_cast<double>(channels);
  const auto original = static_cast<double>(scaling.original_max_positions);
  // The pair that turns so often over the original context.
  const auto pair_of = [&](double turns) {
    return size * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(positions.theta));
  };
  YarnBounds bounds{pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)};
  if (scaling.is_truncated) bounds = {std::floor(bounds.first), std::ceil(bounds.last)};
  bounds = {std::max(bounds.first, 0.0), std::min(bounds.last, size - 1)};
  // Published models were trained with this step where both bounds are one pair.
  if (bounds.first == bounds.last) bounds.last += 0.001;
  return bounds;
}

float yarn_scaled(float frequency, std::int64_t pair, const YarnBounds& bounds,
                  const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto divided = static_cast<float>(std::clamp(
      (static_cast<double>(pair) - bounds.first) / (bounds.last - bounds.first), 0.0, 1.0));
  return frequency / factor * divided + frequency * (1 - divided);
}

/// Published models were trained with the factor inside of the division.
float longrope_scaled(double factor, float exponent, double theta) {
  return 1.0f / (static_cast<float>(factor) * std::pow(static_cast<float>(theta), exponent));
}

/// Pairs of channels from some one on stand still.
float proportionally_scaled(float frequency, std::int64_t pair, std::int64_t channels,
                            const RopeScaling& scaling) {
  const auto turned =
      static_cast<std::int64_t>(scaling.turned_part * static_cast<double>(channels) / 2);
  return pair < turned ? frequency / static_cast<float>(scaling.factor) : 0.0f;
}

RotaryTables tables_of(const Positions& positions, std::int64_t channels, std::int64_t first,
                       std::int64_t length, at::Device device) {
  const std::vector<float> frequencies = rope_frequencies(positions, channels);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const at::Tensor frequency =
      upload(at::from_blob(const_cast<float*>(frequencies.data()), {1, half}, at::kFloat), device);
  const at::Tensor position =
      at::arange(first, first + length, at::TensorOptions(at::kFloat).device(device)).unsqueeze(1);
  const at::Tensor angle = position * frequency;
  RotaryTables tables{angle.cos(), angle.sin()};
  const double amplitude = positions.scaling.amplitude;
  if (amplitude == 1) return tables;
  tables.cos.mul_(amplitude);
  tables.sin.mul_(amplitude);
  return tables;
}

void fill_tables(const Architecture& architecture, std::int64_t first, std::int64_t length,
                 at::Device device, Sequence& sequence) {
  const std::int64_t channels = architecture.turned_channels();
  sequence.tables = tables_of(architecture.positions(), channels, first, length, device);
  if (architecture.window_positions)
    sequence.window_tables =
        tables_of(*architecture.window_positions,
                  architecture.rotary_size > 0 ? channels : architecture.window_head_size(), first,
                  length, device);
}

}  // namespace

std::vector<float> rope_frequencies(const Positions& positions, std::int64_t channels) {
  const RopeScaling& scaling = positions.scaling;
  const bool is_yarn = scaling.kind == RopeScaling::Kind::yarn;
  const YarnBounds bounds = is_yarn ? yarn_bounds(positions, channels) : YarnBounds{};
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < channels / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(channels);
    float frequency = 1.0f / std::pow(static_cast<float>(positions.theta), exponent);
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= static_cast<float>(scaling.factor);
    if (scaling.kind == RopeScaling::Kind::llama3) frequency = llama3_scaled(frequency, scaling);
    if (scaling.kind == RopeScaling::Kind::longrope)
      frequency =
          longrope_scaled(scaling.factors[static_cast<std::size_t>(i)], exponent, positions.theta);
    if (scaling.kind == RopeScaling::Kind::proportional)
      frequency = proportionally_scaled(frequency, i, channels, scaling);
    if (is_yarn) frequency = yarn_scaled(frequency, i, bounds, scaling);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

Sequence make_sequence(const Architecture& architecture, std::int64_t batch, std::int64_t length,
                       at::Device device) {
  Sequence sequence;
  sequence.batch = batch;
  sequence.length = length;
  // Positions index the tables' rows, so both start at 0.
  sequence.positions =
      at::arange(length, at::TensorOptions(at::kLong).device(device)).repeat({batch});
  fill_tables(architecture, 0, length, device, sequence);
  return sequence;
}

Sequence make_sequence(const Architecture& architecture, std::int64_t batch, std::int64_t length,
                       std::vector<Stretch> stretches, at::Device device) {
  Sequence sequence = make_sequence(architecture, batch, length, device);
  std::vector<std::int64_t> positions;
  positions.reserve(static_cast<std::size_t>(batch * length));
  for (const Stretch& stretch : stretches)
    for (std::int64_t i = 0; i < stretch.length; ++i)
      positions.push_back(i);
  core::check(std::ssize(positions) == batch * length, "stretches cover the tokens of a pass");
  sequence.positions = upload(at::tensor(at::ArrayRef<std::int64_t>(positions), at::kLong), device);
  sequence.stretches = std::move(stretches);
  return sequence;
}

Sequence make_sequence(const Architecture& architecture, std::int64_t length, KvCache& cache,
                       at::Device device) {
  Sequence sequence;
  sequence.length = length;
  sequence.caches = {&cache};
  sequence.stretches = {{0, length, false}};
  sequence.first_position = cache.length;
  sequence.positions = at::arange(length, at::TensorOptions(at::kLong).device(device));
  fill_tables(architecture, cache.length, length, device, sequence);
  return sequence;
}

Sequence make_sequence(const Architecture& architecture, std::span<const std::int64_t> lengths,
                       std::vector<KvCache*> caches, const Sequence& earlier, at::Device device) {
  core::check(lengths.size() == caches.size(), "new tokens continue a text each");
  Sequence sequence;
  std::vector<std::int64_t> positions;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    sequence.stretches.push_back({sequence.length, lengths[i], false});
    sequence.length += lengths[i];
    for (std::int64_t j = 0; j < lengths[i]; ++j)
      positions.push_back(caches[i]->length + j);
  }
  sequence.caches = std::move(caches);
  sequence.positions = upload(at::tensor(at::ArrayRef<std::int64_t>(positions), at::kLong), device);
  const std::int64_t last = positions.empty() ? 0 : *std::ranges::max_element(positions);
  if (earlier.tables.cos.defined() && earlier.tables.cos.size(0) > last) {
    sequence.tables = earlier.tables;
    sequence.window_tables = earlier.window_tables;
  } else {
    // For some more tokens of each text.
    constexpr std::int64_t least = 256;
    fill_tables(architecture, 0, std::max(least, 2 * (last + 1)), device, sequence);
  }
  return sequence;
}

}  // namespace finetune::model
