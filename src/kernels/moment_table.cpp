// SPDX-License-Identifier: Apache-2.0
#include "kernels/moment_table.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "kernels/dynamic_map.hpp"

namespace finetune::kernels {
namespace {

MomentTable build(Moment moment) {
  const auto map = dynamic_map(moment == Moment::first ? Sign::both : Sign::positive);
  const auto zero = std::ranges::find(map, 0.0f);
  const std::vector<float> magnitudes(zero, map.end());
  MomentTable table{};
  std::ranges::copy(magnitudes, table.by_code);
  std::copy(map.begin(), zero, table.by_code + magnitudes.size());
  if (moment == Moment::first) table.by_code[magnitudes.size()] = -1.0f;
  const std::size_t last = magnitudes.size() - 1;
  for (std::size_t i = 0; i < last; ++i)
    table.middles[i] = (magnitudes[i] + magnitudes[i + 1]) / 2.0f;
  table.middles[last] = std::numeric_limits<float>::infinity();
  std::int32_t level = 0;
  for (std::int32_t cell = 0; cell < MomentTable::num_cells; ++cell) {
    const float begin = float_of(static_cast<std::uint32_t>(cell + MomentTable::first_cell)
                                 << MomentTable::cell_shift);
    const std::int32_t before = level;
    while (table.middles[level] < begin)
      ++level;
    core::check(level <= before + 1, "adamw8bit: a cell holds the middle of two levels at most");
    table.levels[cell] = level;
  }
  return table;
}

}  // namespace

const MomentTable& moment_table(Moment moment) {
  static const MomentTable first = build(Moment::first), second = build(Moment::second);
  return moment == Moment::first ? first : second;
}

std::span<const float, 256> moment_levels(Moment moment) {
  return moment_table(moment).by_code;
}

}  // namespace finetune::kernels
