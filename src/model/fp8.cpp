// SPDX-License-Identifier: Apache-2.0
#include "model/fp8.hpp"

#include <fmt/format.h>

namespace finetune::model {

std::int64_t fp8_multiple(Fp8Scaling scaling) {
  constexpr std::int64_t of_rows = 16, scales_together = 4;
  return scaling == Fp8Scaling::rowwise ? of_rows : scales_together * fp8_block;
}

bool fits_fp8(std::int64_t outputs, std::int64_t inputs, Fp8Scaling scaling) {
  const std::int64_t multiple = fp8_multiple(scaling);
  return outputs % multiple == 0 && inputs % multiple == 0 && outputs > 0 && inputs > 0;
}

bool may_have_fp8(const Parameter& row) {
  return row.role == Role::linear && row.shape.size() == 2;
}

bool has_fp8_product(const ParameterTable& table, RowRange rows, const Fp8Recipe& recipe) {
  std::int64_t outputs = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    if (!may_have_fp8(table.row(i))) return false;
    outputs += table.row(i).shape[0];
  }
  return fits_fp8(outputs, table.row(rows.first).shape[1], recipe.scaling);
}

std::vector<std::string> without_fp8_product(const ParameterTable& table, const Fp8Recipe& recipe) {
  std::vector<std::string> names;
  const auto check = [&](RowRange rows) {
    if (rows.num == 0 || rows.first < 0 || has_fp8_product(table, rows, recipe)) return;
    std::int64_t outputs = 0;
    for (int i = rows.first; i < rows.first + rows.num; ++i)
      outputs += table.row(i).shape[0];
    names.push_back(fmt::format("{} [{}, {}]", table.row(rows.first).name, outputs,
                                table.row(rows.first).shape[1]));
  };
  for (const BlockRows& block : table.decoder.blocks) {
    check(block.qkv);
    check({block.attention_out, 1});
    check(block.feed_forward.gate_up);
    check({block.feed_forward.down, 1});
  }
  return names;
}

}  // namespace finetune::model
