// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace finetune::checkpoint {
namespace {

constexpr std::size_t group_elements = 1024;

template <typename Real>
void add_one_by_one(std::span<const Real> values, std::int64_t first, Sign sign,
                    ValueSummary& numbers) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    const std::int64_t index = first + static_cast<std::int64_t>(i);
    if (!std::isfinite(value)) {
      numbers.not_finite.add(index, value);
      continue;
    }
    numbers.sum_of_squares += value * value;
    if (sign == Sign::not_negative && value < 0) numbers.negative.add(index, value);
  }
}

template <typename Real>
void add_group(std::span<const Real> values, std::int64_t first, Sign sign, ValueSummary& numbers) {
  // Several sums, because one would wait for itself. A NaN or an infinity shows in them: the square
  // of no finite float overflows a double.
  std::array<double, 8> sums{};
  Real least = 0;
  const std::size_t whole = values.size() - values.size() % sums.size();
  for (std::size_t i = 0; i < whole; i += sums.size()) {
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const Real value = values[i + k];
      sums[k] += static_cast<double>(value) * static_cast<double>(value);
      least = value < least ? value : least;
    }
  }
  double sum = 0;
  for (const double part : sums)
    sum += part;
  if (!std::isfinite(sum) || (sign == Sign::not_negative && least < 0))
    return add_one_by_one(values, first, sign, numbers);
  numbers.sum_of_squares += sum;
  add_one_by_one(values.subspan(whole), first + static_cast<std::int64_t>(whole), sign, numbers);
}

/// Goes through the elements in groups that stay in the cache, converted to `Real`.
template <typename Real>
ValueSummary in_groups(core::DType dtype, core::DType real, std::span<const std::byte> elements,
                       Sign sign) {
  const auto element_bytes = static_cast<std::size_t>(core::size_bytes(dtype));
  std::array<Real, group_elements> group;
  ValueSummary numbers;
  for (std::size_t first = 0; first < elements.size() / element_bytes; first += group_elements) {
    const auto bytes = elements.subspan(first * element_bytes)
                           .first(std::min(group_elements * element_bytes,
                                           elements.size() - first * element_bytes));
    const auto values = std::span(group).first(bytes.size() / element_bytes);
    if (dtype == real)
      std::memcpy(values.data(), bytes.data(), bytes.size());
    else
      core::convert(dtype, bytes, real, std::as_writable_bytes(values));
    add_group<Real>(values, static_cast<std::int64_t>(first), sign, numbers);
  }
  return numbers;
}

}  // namespace

void Outliers::add(std::int64_t index, double its_value) {
  add({1, index, its_value}, 0);
}

void Outliers::add(const Outliers& later, std::int64_t offset) {
  if (later.count > 0 && (count == 0 || later.first + offset < first)) {
    first = later.first + offset;
    value = later.value;
  }
  count += later.count;
}

void ValueSummary::add(const ValueSummary& later, std::int64_t offset) {
  sum_of_squares += later.sum_of_squares;
  not_finite.add(later.not_finite, offset);
  negative.add(later.negative, offset);
}

ValueSummary numbers_of(core::DType dtype, std::span<const std::byte> elements, Sign sign) {
  switch (dtype) {
    case core::DType::f32:
    case core::DType::bf16:
    case core::DType::f16:
      return in_groups<float>(dtype, core::DType::f32, elements, sign);
    case core::DType::f64:
      return in_groups<double>(dtype, core::DType::f64, elements, sign);
    default:
      return {};
  }
}

}  // namespace finetune::checkpoint
