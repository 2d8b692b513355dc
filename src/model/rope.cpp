// SPDX-License-Identifier: Apache-2.0
#include "model/rope.hpp"

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

void fill_tables(const Architecture& architecture, std::int64_t first, std::int64_t length,
                 at::Device device, Sequence& sequence) {
  const std::vector<float> frequencies = rope_frequencies(architecture);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const at::Tensor frequency =
      upload(at::from_blob(const_cast<float*>(frequencies.data()), {1, half}, at::kFloat), device);
  const at::Tensor position =
      at::arange(first, first + length, at::TensorOptions(at::kFloat).device(device)).unsqueeze(1);
  const at::Tensor angle = position * frequency;
  sequence.cos = angle.cos();
  sequence.sin = angle.sin();
}

}  // namespace

std::vector<float> rope_frequencies(const Architecture& architecture) {
  const RopeScaling& scaling = architecture.rope_scaling;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < architecture.head_size / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(architecture.head_size);
    float frequency = 1.0f / std::pow(static_cast<float>(architecture.rope_theta), exponent);
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= static_cast<float>(scaling.factor);
    if (scaling.kind == RopeScaling::Kind::llama3) frequency = llama3_scaled(frequency, scaling);
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
  sequence.cache = &cache;
  sequence.first_position = cache.length;
  sequence.positions = at::arange(length, at::TensorOptions(at::kLong).device(device));
  fill_tables(architecture, cache.length, length, device, sequence);
  return sequence;
}

}  // namespace finetune::model
