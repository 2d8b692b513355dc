// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/detail/sums.hpp"

#include <cstring>

#include "core/error.hpp"

namespace finetune::comm {

Sum::Sum(core::DType dtype, void* target, std::int64_t count)
    : dtype_(dtype), target_(target), count_(count) {
  using enum core::DType;
  core::check(dtype == f32 || dtype == bf16 || dtype == f16 || dtype == i64,
              "sums over ranks are of f32, bf16, f16 and i64");
  if (dtype == i64) {
    integers_.resize(static_cast<std::size_t>(count));
  } else {
    floats_.resize(static_cast<std::size_t>(count));
  }
}

std::byte* Sum::sums() {
  return dtype_ == core::DType::i64 ? reinterpret_cast<std::byte*>(integers_.data())
                                    : reinterpret_cast<std::byte*>(floats_.data());
}

std::int64_t sum_bytes(core::DType dtype) {
  return dtype == core::DType::i64 ? 8 : 4;
}

void add_terms(core::DType dtype, const std::byte* terms, std::int64_t n, std::byte* sums) {
  if (dtype == core::DType::i64) {
    const auto* values = reinterpret_cast<const std::int64_t*>(terms);
    auto* integers = reinterpret_cast<std::int64_t*>(sums);
    for (std::int64_t i = 0; i < n; ++i)
      integers[i] += values[i];
    return;
  }
  auto* floats = reinterpret_cast<float*>(sums);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(terms);
  const auto* values = reinterpret_cast<const float*>(terms);
  for (std::int64_t i = 0; i < n; ++i) {
    floats[i] += dtype == core::DType::f32    ? values[i]
                 : dtype == core::DType::bf16 ? core::bf16_to_float(bits[i])
                                              : core::f16_to_float(bits[i]);
  }
}

void Sum::finish() {
  if (count_ == 0) return;
  if (dtype_ == core::DType::i64) {
    std::memcpy(target_, integers_.data(), integers_.size() * sizeof(std::int64_t));
  } else if (dtype_ == core::DType::f32) {
    std::memcpy(target_, floats_.data(), floats_.size() * sizeof(float));
  } else {
    core::convert(core::DType::f32, std::as_bytes(std::span(floats_)), dtype_,
                  {static_cast<std::byte*>(target_), floats_.size() * 2});
  }
}

}  // namespace finetune::comm
