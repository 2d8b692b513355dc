// SPDX-License-Identifier: Apache-2.0
#include "base/base_hash.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/detail/base_weights.hpp"
#include "base/detail/plane_parts.hpp"
#include "base/packed_files.hpp"
#include "core/dtype.hpp"
#include "model/packing.hpp"
#include "model/part.hpp"
#include "shard/host_copy.hpp"

namespace finetune::base {
namespace {

/// Sum over elements of a mixed (element, place): the order in which they come does not matter.
/// The mixing steps are those of splitmix64 (Steele et al. 2014, "Fast splittable pseudorandom
/// number generators").
template <typename T>
std::uint64_t mixed_sum(const T* elements, std::int64_t first, std::int64_t count,
                        std::uint64_t key) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t z = (static_cast<std::uint64_t>(first + i) + key) * 0x9E3779B97F4A7C15u +
                      static_cast<std::uint64_t>(elements[i]);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    sum += z ^ (z >> 31);
  }
  return sum;
}

/// A run of a plane's elements.
struct Elements {
  int row = 0;
  int plane = 0;
  core::DType dtype = core::DType::u8;
  std::int64_t first = 0;  ///< of the plane
  std::int64_t count = 0;
  const std::byte* bytes = nullptr;
};

std::uint64_t mixed_sum(const Elements& elements, std::int64_t begin, std::int64_t count) {
  const std::uint64_t key = (static_cast<std::uint64_t>(elements.row) << 44) +
                            (static_cast<std::uint64_t>(elements.plane) << 60);
  const std::int64_t size = core::size_bytes(elements.dtype);
  const std::byte* at = elements.bytes + begin * size;
  const std::int64_t first = elements.first + begin;
  if (size == 1) return mixed_sum(reinterpret_cast<const std::uint8_t*>(at), first, count, key);
  if (size == 2) return mixed_sum(reinterpret_cast<const std::uint16_t*>(at), first, count, key);
  return mixed_sum(reinterpret_cast<const std::uint32_t*>(at), first, count, key);
}

std::uint64_t mixed_sum(const Elements& elements) {
  constexpr std::int64_t grain = std::int64_t{1} << 18;
  const std::int64_t num_grains = (elements.count + grain - 1) / grain;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(num_grains), 0);
  at::parallel_for(0, num_grains, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i)
      sums[static_cast<std::size_t>(i)] =
          mixed_sum(elements, i * grain, std::min(grain, elements.count - i * grain));
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t part : sums)
    sum += part;
  return sum;
}

/// Of what the elements become in another dtype, a few MiB at a time.
std::uint64_t sum_of_converted(const Elements& elements, core::DType dtype) {
  constexpr std::int64_t piece = std::int64_t{4} << 20;
  const std::int64_t size = core::size_bytes(elements.dtype);
  std::vector<std::byte> converted;
  std::uint64_t sum = 0;
  for (std::int64_t done = 0; done < elements.count; done += piece) {
    const std::int64_t count = std::min(piece, elements.count - done);
    converted.resize(static_cast<std::size_t>(count * core::size_bytes(dtype)));
    core::convert(elements.dtype,
                  {elements.bytes + done * size, static_cast<std::size_t>(count * size)}, dtype,
                  converted);
    sum += mixed_sum(
        {elements.row, elements.plane, dtype, elements.first + done, count, converted.data()});
  }
  return sum;
}

/// Modulo 2^64, by halves: sums of signed numbers must not overflow.
std::uint64_t all_reduce(const comm::Communicator& fsdp, std::uint64_t value) {
  std::array<std::int64_t, 2> halves = {static_cast<std::int64_t>(value & 0xFFFFFFFFu),
                                        static_cast<std::int64_t>(value >> 32)};
  fsdp.all_reduce(std::span<std::int64_t>(halves), comm::Reduce::sum);
  return static_cast<std::uint64_t>(halves[0]) + (static_cast<std::uint64_t>(halves[1]) << 32);
}

std::string to_text(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

std::uint64_t sum_of_fp8(const weights::ModelFiles& files, const model::Parameter& row, int index) {
  namespace at_plane = model::fp8_plane;
  const auto bytes_of = [](const at::Tensor& tensor) {
    return static_cast<const std::byte*>(tensor.const_data_ptr());
  };
  std::uint64_t sum = 0;
  std::int64_t num_scales = 0;
  for_each_quantised(
      row, values_in(files, row), [&](std::int64_t first, const model::Quantised& rows) {
        sum += mixed_sum({index, at_plane::values, core::DType::u8, first * row.shape[1],
                          rows.values.numel(), bytes_of(rows.values)});
        sum += mixed_sum({index, at_plane::scales, core::DType::f32, num_scales,
                          rows.scales.numel(), bytes_of(rows.scales)});
        num_scales += rows.scales.numel();
      });
  return sum;
}

/// The planes of a row that a run quantises while it reads.
std::uint64_t sum_of_quantised(const weights::ModelFiles& files, const model::Parameter& row,
                               int index) {
  if (row.packing.kind == model::Packing::Kind::fp8) return sum_of_fp8(files, row, index);
  namespace at_plane = model::nf4_plane;
  const Nf4Tensor tensor = quantise(row, values_in(files, row));
  std::uint64_t sum = 0;
  const auto add = [&](int plane, core::DType dtype, const auto& values) {
    sum += mixed_sum({index, plane, dtype, 0, std::ssize(values),
                      reinterpret_cast<const std::byte*>(values.data())});
  };
  add(at_plane::codes, core::DType::u8, tensor.codes);
  if (!row.packing.nests) {
    add(at_plane::maxima, core::DType::f32, tensor.maxima);
    return sum;
  }
  add(at_plane::maxima, core::DType::u8, tensor.maxima_codes);
  add(at_plane::nested_maxima, core::DType::f32, tensor.nested_maxima);
  add(at_plane::offset, core::DType::f32, std::array{tensor.offset});
  return sum;
}

/// Planes that are read as they are kept, a few MiB at a time.
std::uint64_t sum_of_read(const weights::ModelFiles& files, const model::Parameter& row, int index,
                          core::DType compute) {
  constexpr std::int64_t piece = std::int64_t{4} << 20;
  std::uint64_t sum = 0;
  std::vector<std::byte> bytes;
  int i = 0;
  for (const model::Plane& plane : model::planes(row, compute)) {
    for (std::int64_t first = 0; first < plane.count(); first += piece) {
      const std::int64_t count = std::min(piece, plane.count() - first);
      bytes.resize(static_cast<std::size_t>(count * core::size_bytes(plane.dtype)));
      if (row.packing.is_dense()) {
        std::vector<float> values(static_cast<std::size_t>(count));
        values_in(files, row)(first, values);
        core::convert(core::DType::f32, std::as_bytes(std::span(values)), plane.dtype, bytes);
      } else {
        read_plane(files, row, i, first, bytes);
      }
      sum += mixed_sum({index, i, plane.dtype, first, count, bytes.data()});
    }
    ++i;
  }
  return sum;
}

/// Of what a rank keeps of a frozen tensor, where no rank before it counts it.
std::uint64_t sum_of_slice(const model::Parameter& row, const plan::FrozenSlice& slice,
                           const std::byte* bytes, core::DType compute) {
  const plan::FrozenPlane& plane = slice.plane;
  const bool is_noted = row.packing.kind == model::Packing::Kind::nf4 &&
                        plane.plane == model::nf4_plane::maxima && !keeps_maxima(row);
  if (is_noted || !is_counted(row, plane.plane)) return 0;
  std::uint64_t sum = 0;
  for_each_plane_run(row, plane.plane, slice.first, slice.count,
                     [&](std::int64_t first, std::int64_t count) {
                       const Elements run{plane.row, plane.plane, plane.dtype, first, count, bytes};
                       const core::DType dtype = model::dense_dtype(row, compute);
                       const bool is_converted = row.packing.is_dense() && plane.dtype != dtype;
                       sum += is_converted ? sum_of_converted(run, dtype) : mixed_sum(run);
                       bytes += count * core::size_bytes(plane.dtype);
                     });
  return sum;
}

}  // namespace

std::string frozen_hash(const shard::ModelShards& shards) {
  return frozen_hash(shards, shards.map().rules().compute);
}

std::string frozen_hash(const shard::ModelShards& shards, core::DType compute) {
  if (!shards.map().has_frozen()) return "";
  std::uint64_t sum = shards.note_of_frozen();
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    if (shards.is_trained(unit)) continue;
    const shard::HostCopy copy(shards.published(unit));
    for (const plan::FrozenSlice& slice : shards.map().frozen_slices(unit, shards.shard_of(unit)))
      sum += sum_of_slice(shards.table().row(slice.plane.row), slice,
                          copy.bytes().data() + slice.shard_offset_bytes, compute);
  }
  sum = all_reduce(shards.fsdp(), sum);
  const auto& tp = shards.groups().tp;
  return to_text(tp ? all_reduce(tp->communicator(), sum) : sum);
}

std::uint64_t sum_of_plane(int row, int plane, core::DType dtype,
                           std::span<const std::byte> bytes) {
  return mixed_sum(
      {row, plane, dtype, 0, std::ssize(bytes) / core::size_bytes(dtype), bytes.data()});
}

std::string frozen_hash(const weights::ModelFiles& files, const model::ParameterTable& table,
                        core::DType compute) {
  std::uint64_t sum = 0;
  for (int i = 0; i < static_cast<int>(table.rows.size()); ++i) {
    const model::Parameter& row = table.row(i);
    if (row.trainable) continue;
    const bool is_quantised = !row.packing.is_dense() && !row.packing.in_files;
    sum += is_quantised ? sum_of_quantised(files, row, i) : sum_of_read(files, row, i, compute);
  }
  return to_text(sum);
}

}  // namespace finetune::base
