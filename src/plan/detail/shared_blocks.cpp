// SPDX-License-Identifier: Apache-2.0
#include "plan/detail/shared_blocks.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

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

bool is_laid_out_as(const model::Parameter& a, const model::Parameter& b) {
  const auto pieces = [](const model::Parameter& row) {
    return row.split ? row.split->matrices : std::vector<model::Pieces>();
  };
  return a.trainable == b.trainable && a.part == b.part && a.shape == b.shape &&
         a.split.has_value() == b.split.has_value() && (!a.split || a.split->dim == b.split->dim) &&
         std::ranges::equal(pieces(a), pieces(b),
                            [](const model::Pieces& one, const model::Pieces& other) {
                              return one.num == other.num && one.size == other.size &&
                                     one.parts == other.parts;
                            }) &&
         a.of_experts.has_value() == b.of_experts.has_value() &&
         (!a.of_experts ||
          (a.of_experts->first == b.of_experts->first && a.of_experts->num == b.of_experts->num &&
           a.of_experts->total == b.of_experts->total));
}

/// The rows of units that differ in what they hold: most blocks of a model are alike, and large
/// mixtures of experts have tens of thousands of rows.
model::ParameterTable different_units(const model::ParameterTable& table) {
  std::vector<std::vector<int>> rows(table.units.size());
  for (int i = 0; i < static_cast<int>(table.rows.size()); ++i)
    rows[static_cast<std::size_t>(table.row(i).unit)].push_back(i);
  std::vector<const std::vector<int>*> known;
  model::ParameterTable different;
  different.units = table.units;
  for (const std::vector<int>& unit : rows) {
    const bool is_known = std::ranges::any_of(known, [&](const std::vector<int>* other) {
      return std::ranges::equal(
          unit, *other, [&](int a, int b) { return is_laid_out_as(table.row(a), table.row(b)); });
    });
    if (is_known) continue;
    known.push_back(&unit);
    for (const int i : unit) {
      different.rows.push_back(table.row(i));
      different.rows.back().published = {};  // which the whole table alone can settle
    }
  }
  return different;
}

}  // namespace

std::string row_in_unequal_blocks(const Mesh& mesh, const model::ParameterTable& table,
                                  Bucket bucket, std::int64_t block) {
  const std::int64_t tp = mesh.axes[Axis::tp];
  if (tp == 1 || block == 1) return "";
  // Where all is one unit, what comes before a block counts too.
  model::ParameterTable trained =
      regroup(bucket == Bucket::whole ? table : different_units(table), bucket, mesh.ep);
  std::erase_if(trained.rows, [](const model::Parameter& row) { return !row.trainable; });
  std::vector<std::vector<int>> rows(trained.units.size());
  for (int i = 0; i < static_cast<int>(trained.rows.size()); ++i)
    rows[static_cast<std::size_t>(trained.row(i).unit)].push_back(i);
  // Ranks of ep have as many experts as the first or as the last of them, which are alike.
  for (const std::int64_t i_ep : std::set<std::int64_t>{0, mesh.ep - 1}) {
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
