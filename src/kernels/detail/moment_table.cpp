// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/moment_table.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "kernels/detail/dynamic_map.hpp"

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
  for (std::size_t code = 0; code < 256; ++code) {
    for (std::size_t i = 0; i < 4; ++i)
      table.bytes[i][code] = static_cast<std::uint8_t>(bits_of(table.by_code[code]) >> (8 * i));
  }
  table.between_last = 0.5f * (-table.by_code[130] - table.by_code[129]);
  const std::size_t last = magnitudes.size() - 1;
  std::vector<float> middles;
  for (std::size_t i = 0; i < last; ++i)
    middles.push_back((magnitudes[i] + magnitudes[i + 1]) / 2.0f);
  middles.push_back(std::numeric_limits<float>::infinity());
  const auto begin_of = [](std::int32_t cell) {
    return static_cast<std::uint32_t>(cell + MomentTable::first_cell) << MomentTable::cell_shift;
  };
  std::uint32_t level = 0;
  for (std::int32_t cell = 0; cell < MomentTable::num_cells; ++cell) {
    const std::uint32_t before = level;
    while (middles[level] < float_of(begin_of(cell)))
      ++level;
    core::check(level <= before + 1, "adamw8bit: a cell holds the middle of two levels at most");
    const bool has_middle = middles[level] < float_of(begin_of(cell + 1));
    const std::uint32_t until =
        has_middle ? bits_of(middles[level]) & MomentTable::lower_bits : MomentTable::lower_bits;
    table.cells[cell] = level << MomentTable::cell_shift | until;
  }
  return table;
}

struct MomentTables {
  MomentTable first = build(Moment::first), second = build(Moment::second);
};

const MomentTables& tables() {
  static const MomentTables both;
  return both;
}

}  // namespace

const MomentTable& moment_table(Moment moment) {
  return moment == Moment::first ? tables().first : tables().second;
}

std::span<const std::byte> moment_tables() {
  return std::as_bytes(std::span(&tables(), 1));
}

std::span<const float, 256> moment_levels(Moment moment) {
  return moment_table(moment).by_code;
}

}  // namespace finetune::kernels
