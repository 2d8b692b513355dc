// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/lora.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "adapters/lora/cost.hpp"
#include "adapters/lora/parts.hpp"
#include "adapters/lora/peft.hpp"
#include "adapters/lora/settings.hpp"
#include "adapters/lora/sizes.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "model/adapter_targets.hpp"
#include "model/names.hpp"

namespace finetune::adapters::lora {
namespace {

using model::Init;
using model::module_of;
using model::Parameter;
using model::ParameterTable;

/// A low-rank part of full rank costs more than the matrix and limits nothing.
void warn_of_full_rank(const Settings& settings, const LowRankSizes& sizes,
                       const std::string& where, const ParameterTable& table,
                       const std::vector<bool>& chosen) {
  const auto side = [](const Parameter& row) { return std::min(row.shape[0], row.shape[1]); };
  const auto rank = [&](const Parameter& row) { return sizes.rank(module_of(row.name)); };
  const Parameter* smallest = nullptr;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Parameter& row = table.rows[i];
    if (chosen[i] && rank(row) >= side(row) && (smallest == nullptr || side(row) < side(*smallest)))
      smallest = &row;
  }
  if (where.empty() || smallest == nullptr) return;
  const bool is_usual = rank(*smallest) == settings.r;
  log::warn(core::to_string(
      {where, fmt::format("adapter.{} = {}", is_usual ? "lora_r" : "rank_pattern", rank(*smallest)),
       fmt::format("{} has only {} {}: its low-rank part holds more numbers than it",
                   smallest->name, side(*smallest),
                   smallest->shape[0] <= smallest->shape[1] ? "rows" : "columns"),
       "Lower it, or train without an adapter."}));
}

/// A pattern of the deck that means nothing is a mistake; PEFT's files may hold such.
void require_used(const model::AdapterSettings& settings, const LowRankSizes& sizes,
                  const std::string& where, const ParameterTable& table,
                  const std::vector<bool>& chosen) {
  if (where.empty() || !settings.path.empty()) return;
  const std::vector<std::string> modules = model::modules_of(table, chosen);
  const auto unused = sizes.unused(modules);
  if (unused.empty()) return;
  core::fail(core::ErrorKind::deck,
             {where,
              fmt::format("adapter.rank_pattern or adapter.alpha_pattern holds \"{}\"",
                          core::one_line(unused.front())),
              "no module with a low-rank part has such a name",
              fmt::format("Write a name such as {}, or its end.", modules.front())});
}

class Builder {
 public:
  Builder(const Settings& settings, const LowRankSizes& sizes, ParameterTable& table)
      : settings_(settings), sizes_(sizes), table_(table) {
    table.units.emplace_back(model::adapter_unit);
  }

  /// Rows [first, last) may be read as one matrix: their A follow each other, then their B.
  void add(int first, int last, const std::vector<bool>& chosen) {
    std::vector<int> rows;
    for (int i = first; i < last; ++i)
      if (chosen[static_cast<std::size_t>(i)]) rows.push_back(i);
    for (const int i : rows)
      add_part(i, ".lora_A.weight",
               {.shape = {rank(i), at(i).shape[1]}, .shared_dim = 1, .init = Init::fan_in});
    for (const int i : rows)
      add_part(i, ".lora_B.weight", {.shape = {at(i).shape[0], rank(i)}});
    for (const int i : rows) {
      at(i).adapted.scale = sizes_.scale(module_of(at(i).name));
      if (settings_.use_dora)
        add_part(i, ".lora_magnitude_vector",
                 {.shape = {at(i).shape[0]}, .init = Init::row_norms, .decayed = false});
    }
  }

 private:
  Parameter& at(int row) { return table_.rows[static_cast<std::size_t>(row)]; }
  std::int64_t rank(int row) { return sizes_.rank(module_of(at(row).name)); }

  /// Behind the parts that `row` has (LowRank).
  void add_part(int row, const char* suffix, const model::PartShape& part) {
    const int added = model::add_part(table_, row, suffix, part);
    at(row).adapted.parts.push_back(added);
  }

  const Settings& settings_;
  const LowRankSizes& sizes_;
  ParameterTable& table_;
};

/// Neighbours that one product may read have the same inputs, and lie next to each other.
int end_of_range(const ParameterTable& table, int first) {
  int last = first + 1;
  const auto is_next = [&](int i) {
    const Parameter &a = table.row(first), &b = table.row(i);
    return b.shape.size() == 2 && b.role == a.role && b.stage == a.stage && b.part == a.part &&
           b.shape[1] == a.shape[1];
  };
  while (last < static_cast<int>(table.rows.size()) && is_next(last))
    ++last;
  return last;
}

/// LoRA+ as PEFT groups the parameters. Source: Hayou et al. 2024 (arXiv 2402.12354);
/// peft/optimizers/loraplus.py.
void set_lr_ratios(double ratio, ParameterTable& table) {
  for (Parameter& row : table.rows)
    if (row.adapted.exists())
      table.rows[static_cast<std::size_t>(row.adapted.parts[LowRank::b])].lr_ratio = ratio;
  for (Parameter& row : table.rows)
    if (row.trainable && row.shape.size() == 1) row.lr_ratio = ratio;
}

}  // namespace

void rewrite(const model::AdapterSettings& adapter, const std::string& where,
             ParameterTable& table) {
  const std::vector<bool> chosen = model::freeze_all_but_targets(adapter, where, table);
  const auto settings = adapter.of<Settings>();
  const LowRankSizes sizes(settings, where);
  require_used(adapter, sizes, where, table, chosen);
  warn_of_full_rank(settings, sizes, where, table, chosen);
  const auto num_rows = static_cast<int>(table.rows.size());
  Builder builder(settings, sizes, table);
  for (int first = 0; first < num_rows;) {
    const int last = std::min(end_of_range(table, first), num_rows);
    builder.add(first, last, chosen);
    first = last;
  }
  set_lr_ratios(settings.loraplus_lr_ratio, table);
}

model::Adapter adapter(const model::AdapterMath* math) {
  return {.name = "lora",
          .sentence = "low-rank matrices on top of frozen weights",
          .peft_type = "LORA",
          .bind = bind,
          .rewrite = rewrite,
          .dropout = dropout,
          .read_peft = read_peft,
          .write_peft = write_peft,
          .keep_of_deck = keep_of_deck,
          // Programs that save PEFT's modules themselves leave the adapter's name in, and PEFT was
          // of two minds about DoRA's magnitudes.
          .endings = {{".lora_A.default.weight", ".lora_A.weight"},
                      {".lora_B.default.weight", ".lora_B.weight"},
                      {".lora_magnitude_vector.default.weight", ".lora_magnitude_vector"},
                      {".lora_magnitude_vector.default", ".lora_magnitude_vector"},
                      {".lora_magnitude_vector.weight", ".lora_magnitude_vector"}},
          .is_remedy = true,
          .cost = &cost(),
          .math = math};
}

}  // namespace finetune::adapters::lora
