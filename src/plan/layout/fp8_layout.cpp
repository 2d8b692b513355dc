// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/fp8_layout.hpp"

#include <algorithm>
#include <unordered_map>

#include "core/error.hpp"

namespace finetune::plan {
namespace {

constexpr std::int64_t fp32_bytes = sizeof(float), index_element_bytes = sizeof(std::int32_t);

/// A row's scales: [outputs / rows of a tile, columns].
struct Tiles {
  explicit Tiles(const model::Parameter& row)
      : inputs(row.shape[1]),
        rows_of_one(std::max<std::int64_t>(1, row.published.group_size)),
        columns(row.published.group_size == 0 ? 1 : inputs / row.published.group_size) {}

  /// The first scale in the row of tiles that an element is in.
  std::int64_t begin_at(std::int64_t element) const {
    return element / inputs / rows_of_one * columns;
  }
  std::int64_t end_at(std::int64_t element) const { return begin_at(element) + columns; }

  std::int64_t inputs, rows_of_one, columns;
};

void extend(Stretch& stretch, std::int64_t first, std::int64_t end) {
  if (stretch.count == 0) stretch.first = first;
  stretch.count = end - stretch.first;
}

bool are_alike(const model::ParameterTable& table, const UnitLayout& a, const UnitLayout& b) {
  return a.in_8_bits && b.in_8_bits && a.shard_size == b.shard_size &&
         a.num_shards == b.num_shards &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(), [&](int i, int j) {
           const model::Parameter &x = table.row(i), &y = table.row(j);
           return x.shape == y.shape && x.published.kind == y.published.kind &&
                  x.published.group_size == y.published.group_size;
         });
}

}  // namespace

Fp8Layout::Fp8Layout(const model::ParameterTable& table, const ShardMap& shards, int unit) {
  const UnitLayout& layout = shards.unit(unit);
  core::check(layout.in_8_bits, "the unit is gathered in 8 bits");
  std::unordered_map<int, std::int64_t> place_of;
  for (const int i : layout.rows) {
    const model::Parameter& row = table.row(i);
    const bool is_other = row.published.is_dense();
    std::int64_t& num = is_other ? num_others_ : num_scales_;
    places_.push_back(num);
    place_of[i] = num;
    if (row.count() > 0) num += is_other ? row.count() : Tiles(row).end_at(row.count() - 1);
  }
  for (std::int64_t i = 0; i < layout.num_shards; ++i) {
    Stretch& scales = scales_.emplace_back();
    Stretch& others = others_.emplace_back();
    for (const ShardSlice& slice : shards.slices(unit, i)) {
      const model::Parameter& row = table.row(slice.row);
      const std::int64_t place = place_of[slice.row];
      const std::int64_t last = slice.tensor_offset + slice.count - 1;
      if (row.published.is_dense()) {
        extend(others, place + slice.tensor_offset, place + last + 1);
      } else {
        const Tiles tiles(row);
        extend(scales, place + tiles.begin_at(slice.tensor_offset), place + tiles.end_at(last));
      }
    }
  }
}

std::int64_t Fp8Layout::most(const std::vector<Stretch>& all) {
  std::int64_t most = 0;
  for (const Stretch& stretch : all)
    most = std::max(most, stretch.count);
  return most;
}

std::int64_t Fp8Layout::most_sharers() const {
  // Stretches begin and end in the order of shards: whoever shares one with a shard before it
  // begins before that one ends.
  std::int64_t most = 1;
  for (std::size_t i = 0, first = 0; i < scales_.size(); ++i) {
    if (scales_[i].count == 0) continue;
    while (first < i && scales_[first].end() <= scales_[i].first)
      ++first;
    most = std::max(most, static_cast<std::int64_t>(i - first + 1));
  }
  return most;
}

std::int64_t Fp8Layout::message_bytes(core::DType compute) const {
  const std::int64_t others = most_others() * core::size_bytes(compute);
  return fp32_bytes * (most_scales() + (others + fp32_bytes - 1) / fp32_bytes);
}

std::int64_t Fp8Layout::kept_bytes(core::DType compute) const {
  return fp32_bytes * num_scales_ + core::size_bytes(compute) * num_others_;
}

std::int64_t Fp8Layout::index_bytes() const {
  return index_element_bytes * (most_sharers() * num_scales_ + num_others_);
}

std::vector<std::shared_ptr<const Fp8Layout>> fp8_layouts(const model::ParameterTable& table,
                                                          const ShardMap& shards) {
  std::vector<std::shared_ptr<const Fp8Layout>> all;
  std::vector<int> different;  // of a few kinds: blocks, or their experts
  for (int unit = 0; unit < std::ssize(shards.units()); ++unit) {
    const UnitLayout& layout = shards.unit(unit);
    auto& of = all.emplace_back();
    if (!layout.in_8_bits) continue;
    const auto like = std::ranges::find_if(
        different, [&](int other) { return are_alike(table, shards.unit(other), layout); });
    if (like != different.end()) {
      of = all[static_cast<std::size_t>(*like)];
      continue;
    }
    of = std::make_shared<const Fp8Layout>(table, shards, unit);
    different.push_back(unit);
  }
  return all;
}

}  // namespace finetune::plan
