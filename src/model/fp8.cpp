// SPDX-License-Identifier: Apache-2.0
#include "model/fp8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "model/packing.hpp"

namespace finetune::model {

std::int64_t fp8_multiple(Fp8Scaling scaling) {
  constexpr std::int64_t of_rows = 16, scales_together = 4;
  return scaling == Fp8Scaling::rowwise ? of_rows : scales_together * fp8_block;
}

std::int64_t fp8_padded_tokens(std::int64_t tokens, Fp8Scaling scaling) {
  const std::int64_t multiple = fp8_multiple(scaling);
  return (tokens + multiple - 1) / multiple * multiple;
}

bool fits_fp8(std::int64_t outputs, std::int64_t inputs, Fp8Scaling scaling) {
  const std::int64_t multiple = fp8_multiple(scaling);
  return outputs % multiple == 0 && inputs % multiple == 0 && outputs > 0 && inputs > 0;
}

bool may_have_fp8(const Parameter& row) {
  return (row.role == Role::linear || row.role == Role::expert) && row.shape.size() == 2;
}

bool has_fp8_product(const ParameterTable& table, RowRange rows, const Fp8Recipe& recipe) {
  std::int64_t outputs = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    if (!may_have_fp8(table.row(i))) return false;
    outputs += table.row(i).shape[0];
  }
  return fits_fp8(outputs, table.row(rows.first).shape[1], recipe.scaling);
}

namespace {

/// The matrices of each expert, where these are tensors of their own.
template <typename F>
void for_each_expert_product(const ParameterTable& table, const ExpertRows& rows, const F& f) {
  if (rows.stride == 0) return;
  const auto& of = table.row(rows.down).of_experts;
  for (int i = 0; of && i < of->total; ++i) {
    f({rows.gate_up.first + i * rows.stride, rows.gate_up.num});
    f({rows.down + i * rows.stride, 1});
  }
}

/// The matrices that each block multiplies with at once. Rows that a block does not have are no
/// matrices of blocks, and of experts that another rank has there is nothing.
template <typename F>
void for_each_product(const ParameterTable& table, const F& f) {
  const auto visit = [&](RowRange rows) {
    if (rows.num <= 0 || rows.first < 0) return;
    const Parameter& first = table.row(rows.first);
    if (may_have_fp8(first) && first.count() > 0) f(rows);
  };
  for (const BlockRows& block : table.decoder.blocks) {
    visit(block.qkv);
    visit({block.query_up, 1});
    visit({block.key_value_up, 1});
    visit({block.attention_out, 1});
    visit(block.feed_forward.gate_up);
    visit({block.feed_forward.down, 1});
    for_each_expert_product(table, block.experts, visit);
  }
}

}  // namespace

Fp8Scaling scaling_of(const Packing& packing) {
  return packing.group_size == 0 ? Fp8Scaling::rowwise : Fp8Scaling::block;
}

Packing fp8_packing(const Fp8Recipe& recipe) {
  return {.kind = Packing::Kind::fp8,
          .nests = false,
          .group_size = recipe.scaling == Fp8Scaling::rowwise ? 0 : fp8_block};
}

void keep_in_fp8(const Fp8Recipe& recipe, ParameterTable& table) {
  const Packing packing = fp8_packing(recipe);
  for_each_product(table, [&](RowRange rows) {
    if (!has_fp8_product(table, rows, recipe)) return;
    const auto begin = table.rows.begin() + rows.first;
    // Rows that are read as one are all kept alike.
    const bool is_trained = begin->trainable;
    const bool can_be = std::all_of(begin, begin + rows.num, [&](const Parameter& row) {
      return row.trainable == is_trained && row.packing.is_dense() &&
             why_not_packed(row, packing).empty();
    });
    if (!can_be) return;
    for (Parameter& row : std::span(begin, begin + rows.num))
      (is_trained ? row.published : row.packing) = packing;
  });
}

void settle_published(ParameterTable& table) {
  const auto is_published = [](const Parameter& row) { return !row.published.is_dense(); };
  if (std::none_of(table.rows.begin(), table.rows.end(), is_published)) return;
  std::vector<std::int64_t> all(table.units.size(), 0), others = all;
  std::vector<char> may_be(table.rows.size(), 0);
  for_each_product(table, [&](RowRange rows) {
    const auto begin = table.rows.begin() + rows.first;
    const Packing packing = begin->published;
    const Fp8Recipe recipe = {.scaling = scaling_of(packing)};
    const bool fits = has_fp8_product(table, rows, recipe) &&
                      std::all_of(begin, begin + rows.num, [&](const Parameter& row) {
                        return is_published(row) && row.unit == begin->unit &&
                               why_not_packed(row, packing).empty();
                      });
    if (fits) std::fill_n(may_be.begin() + rows.first, rows.num, char{1});
  });
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Parameter& row = table.rows[i];
    const auto unit = static_cast<std::size_t>(row.unit);
    all[unit] += row.count();
    if (may_be[i] == 0) others[unit] += row.count();
  }
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const auto unit = static_cast<std::size_t>(table.rows[i].unit);
    if (may_be[i] == 0 || others[unit] * fp8_unit_share > all[unit]) table.rows[i].published = {};
  }
}

std::vector<std::string> without_fp8_product(const ParameterTable& table, const Fp8Recipe& recipe) {
  std::vector<std::string> names;
  for_each_product(table, [&](RowRange rows) {
    if (has_fp8_product(table, rows, recipe)) return;
    std::int64_t outputs = 0;
    for (int i = rows.first; i < rows.first + rows.num; ++i)
      outputs += table.row(i).shape[0];
    names.push_back(fmt::format("{} [{}, {}]", table.row(rows.first).name, outputs,
                                table.row(rows.first).shape[1]));
  });
  return names;
}

}  // namespace finetune::model
