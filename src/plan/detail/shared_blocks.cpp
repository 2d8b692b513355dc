// SPDX-License-Identifier: Apache-2.0
#include "plan/detail/shared_blocks.hpp"

#include <utility>

#include "model/part.hpp"
#include "plan/layout/bucket.hpp"

namespace finetune::plan {
namespace {

/// Number of the holders of a row among the ranks of tp, and this rank's among them: rows for which
/// both are equal have the same holders.
std::pair<std::int64_t, std::int64_t> holders_of(const model::Parameter& row) {
  return row.held ? std::pair(row.held->num_holders, row.held->holder) : std::pair(1L, 0L);
}

/// Neighbours with the same holders lie together on each of them: whether they fill their blocks.
/// The name of the first of those that do not.
std::string first_unequal(const model::ParameterTable& own, const std::vector<int>& rows,
                          std::int64_t block) {
  std::int64_t end = 0;
  const model::Parameter* first = nullptr;  // of those with the same holders
  const auto is_torn = [&](const model::Parameter& row) {
    return first != nullptr && holders_of(*first).first > 1 && end % block != 0 &&
           holders_of(row) != holders_of(*first);
  };
  for (const int i : rows) {
    const model::Parameter& row = own.row(i);
    if (row.count() == 0) continue;
    if (is_torn(row)) return first->name;
    if (first == nullptr || holders_of(row) != holders_of(*first)) {
      if (holders_of(row).first > 1 && end % block != 0) return row.name;
      first = &row;
    }
    end += row.count();
  }
  return "";
}

}  // namespace

std::string row_in_unequal_blocks(const Mesh& mesh, const model::ParameterTable& table,
                                  Bucket bucket, std::int64_t block) {
  const std::int64_t tp = mesh.axes[Axis::tp];
  if (tp == 1 || block == 1) return "";
  model::ParameterTable trained = regroup(table, bucket, mesh.ep);
  std::erase_if(trained.rows, [](const model::Parameter& row) { return !row.trainable; });
  std::vector<std::vector<int>> rows(trained.units.size());
  for (int i = 0; i < static_cast<int>(trained.rows.size()); ++i)
    rows[static_cast<std::size_t>(trained.row(i).unit)].push_back(i);
  // Neighbours of shared rows are those of the same rank of ep, whose experts have no holders but
  // those of tp.
  for (std::int64_t i_ep = 0; i_ep < mesh.ep; ++i_ep) {
    for (std::int64_t i_tp = 0; i_tp < tp; ++i_tp) {
      const auto own =
          model::part_of(trained, {.tp = tp, .i_tp = i_tp, .ep = mesh.ep, .i_ep = i_ep});
      for (const std::vector<int>& of_unit : rows)
        if (std::string name = first_unequal(own, of_unit, block); !name.empty()) return name;
    }
  }
  return "";
}

}  // namespace finetune::plan
