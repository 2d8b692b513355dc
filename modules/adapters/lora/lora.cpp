// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/lora.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "adapters/lora/cost.hpp"
#include "adapters/lora/expert_matrices.hpp"
#include "adapters/lora/parts.hpp"
#include "adapters/lora/peft.hpp"
#include "adapters/lora/settings.hpp"
#include "adapters/lora/sizes.hpp"
#include "adapters/lora/start_kind.hpp"
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
  const auto rank = [&](const Parameter& row) { return sizes.rank(row); };
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

/// Names that patterns may mean.
std::vector<std::string> modules_of(const ParameterTable& table, const std::vector<bool>& chosen,
                                    const std::vector<ExpertMatrices>& experts) {
  std::vector<std::string> modules = model::modules_of(table, chosen);
  for (const ExpertMatrices& of : experts)
    modules.push_back(of.name());
  return modules;
}

/// A pattern of the deck that means nothing is a mistake; PEFT's files may hold such.
void require_used(const model::AdapterSettings& settings, const LowRankSizes& sizes,
                  const std::string& where, const std::vector<std::string>& modules) {
  if (where.empty() || !settings.path.empty()) return;
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
      : settings_(settings),
        sizes_(sizes),
        table_(table),
        start_(StartKind::parse(settings.init).value_or(StartKind{}).code()) {
    table.units.emplace_back(model::adapter_unit);
  }

  /// Rows [first, last) may be read as one matrix: their A follow each other, then their B.
  void add(int first, int last, const std::vector<bool>& chosen) {
    std::vector<int> rows;
    for (int i = first; i < last; ++i)
      if (chosen[static_cast<std::size_t>(i)]) rows.push_back(i);
    if (!rows.empty() && at(rows.front()).role == model::Role::embedding)
      return add_to_embedding(rows.front());
    for (const int i : rows)
      add_part(i, ".lora_A.weight",
               {.shape = {rank(i), at(i).shape[1]}, .shared_dim = 1, .init = Init::fan_in});
    for (const int i : rows)
      add_part(i, ".lora_B.weight", {.shape = {at(i).shape[0], rank(i)}});
    if (start_ != 0) add_starts(rows);
    for (const int i : rows) {
      at(i).adapted.scale = sizes_.scale(at(i));
      if (settings_.use_dora)
        add_part(i, ".lora_magnitude_vector",
                 {.shape = {at(i).shape[0]}, .init = Init::row_norms, .decayed = false});
    }
  }

 private:
  /// Rows that nothing trains; kept with the others, as checkpoints and exports need them.
  void add_starts(const std::vector<int>& rows) {
    for (const int i : rows) {
      at(i).adapted.parts.push_back(-1);
      at(i).adapted.start = start_;
      add_start(i, ".lora_A_start.weight", {rank(i), at(i).shape[1]}, 1);
    }
    for (const int i : rows)
      add_start(i, ".lora_B_start.weight", {at(i).shape[0], rank(i)}, 0);
  }
  void add_start(int row, const char* suffix, std::vector<std::int64_t> shape,
                 std::size_t shared_dim) {
    add_part(row, suffix, {.shape = std::move(shape), .shared_dim = shared_dim, .decayed = false});
    table_.rows.back().trained_rows = model::RowSpan{};
  }

  /// Of its transpose, beginning with a B of random numbers where matrices have a random A.
  void add_to_embedding(int row) {
    const std::int64_t vocabulary = at(row).shape[0], width = at(row).shape[1];
    at(row).adapted.of_transpose = true;
    at(row).adapted.scale = sizes_.scale(at(row));
    add_part(row, ".lora_embedding_A",
             {.shape = {rank(row), vocabulary}, .shared_dim = 0, .own_dim = 1});
    add_part(
        row, ".lora_embedding_B",
        {.shape = {width, rank(row)}, .shared_dim = 1, .own_dim = 0, .init = Init::unit_normal});
  }

  Parameter& at(int row) { return table_.rows[static_cast<std::size_t>(row)]; }
  std::int64_t rank(int row) { return sizes_.rank(at(row)); }

  /// Behind the parts that `row` has (LowRank).
  void add_part(int row, const char* suffix, const model::PartShape& part) {
    const int added = model::add_part(table_, row, suffix, part);
    at(row).adapted.parts.push_back(added);
  }

  const Settings& settings_;
  const LowRankSizes& sizes_;
  ParameterTable& table_;
  int start_ = 0;  ///< StartKind::code
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
void set_lr_ratios(const Settings& settings, ParameterTable& table) {
  const auto part = [&](const Parameter& row, std::size_t i) -> Parameter& {
    return table.rows[static_cast<std::size_t>(row.adapted.parts[i])];
  };
  for (Parameter& row : table.rows) {
    if (row.trainable && row.shape.size() == 1) row.lr_ratio = settings.loraplus_lr_ratio;
    if (!row.adapted.exists()) continue;
    part(row, LowRank::b).lr_ratio = settings.loraplus_lr_ratio;
    if (row.role == model::Role::embedding)
      part(row, LowRank::a).lr_ratio = part(row, LowRank::b).lr_ratio =
          settings.loraplus_embedding_lr_ratio;
  }
}

/// Factors of a matrix are those of what the model computes with, whole and unpacked.
void refuse_starts(const Settings& settings, const std::string& where, const ParameterTable& table,
                   const std::vector<bool>& chosen, const std::vector<ExpertMatrices>& experts) {
  if (settings.init == Settings().init) return;
  const std::string what = fmt::format("adapter.init = \"{}\"", settings.init);
  const auto refuse = [&](const std::string& why, const std::string& remedy) {
    core::fail(core::ErrorKind::deck, {where, what, why, remedy});
  };
  if (settings.use_dora)
    refuse("DoRA's magnitudes are of the sum with what the matrices begin with",
           "Set use_dora = false, or init = \"lora\".");
  if (!experts.empty())
    refuse("experts named by target_parameters begin with random numbers and zeros, as in PEFT",
           "Remove target_parameters, or set init = \"lora\".");
  const LowRankSizes sizes(settings, where);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Parameter& row = table.rows[i];
    if (!chosen[i]) continue;
    if (row.role == model::Role::embedding)
      refuse(fmt::format("{} is looked up, and begins with random numbers and zeros",
                         module_of(row.name)),
             "Leave it out of adapter.target_modules, or set init = \"lora\".");
    if (!row.packing.is_dense())
      refuse(
          fmt::format("{} is kept in few bits, and what is left of it once its factors are taken "
                      "off is not quantised again",
                      row.name),
          "Set adapter.name = \"lora\", or init = \"lora\".");
    const std::int64_t rank = sizes.rank(row);
    if (rank > std::min(row.shape[0], row.shape[1]))
      refuse(fmt::format("{} has {} rows and {} columns, and so fewer factors than the rank {}",
                         row.name, row.shape[0], row.shape[1], rank),
             "Lower lora_r or rank_pattern.");
  }
}

/// What parts of blocks' matrices may have and others not: magnitudes, and of experts dropout,
/// which PEFT cannot do either. Norms of a vocabulary's rows would be computed per chunk of tokens.
void refuse_for_others(const Settings& settings, const std::string& where,
                       const ParameterTable& table, const std::vector<bool>& chosen,
                       const std::vector<ExpertMatrices>& experts) {
  const auto refuse = [&](const std::string& what, const std::string& why,
                          const std::string& remedy) {
    core::fail(core::ErrorKind::deck, {where, what, why, remedy});
  };
  for (std::size_t i = 0; i < table.rows.size() && settings.use_dora; ++i)
    if (chosen[i] && table.rows[i].role != model::Role::linear)
      refuse(fmt::format("adapter.use_dora and {}", module_of(table.rows[i].name)),
             "DoRA is of matrices of the blocks that all tokens pass",
             "Leave that module out of adapter.target_modules, or set use_dora = false.");
  refuse_starts(settings, where, table, chosen, experts);
  if (experts.empty()) return;
  if (settings.use_dora)
    refuse("adapter.use_dora and adapter.target_parameters",
           "DoRA is of matrices of the blocks that all tokens pass",
           "Remove target_parameters, or set use_dora = false.");
  if (settings.dropout > 0)
    refuse("adapter.lora_dropout and adapter.target_parameters",
           "nothing is dropped of experts' inputs, neither here nor in PEFT",
           "Set lora_dropout = 0.0, or remove target_parameters.");
}

}  // namespace

void rewrite(const model::AdapterSettings& adapter, const std::string& where,
             ParameterTable& table) {
  const auto settings = adapter.of<Settings>();
  const std::vector<bool> chosen = model::freeze_all_but_targets(
      adapter, where, table, {.vocabulary = true, .others = !settings.target_parameters.empty()});
  const std::vector<ExpertMatrices> experts =
      named_experts(settings.target_parameters, where, table);
  refuse_for_others(settings, where, table, chosen, experts);
  const LowRankSizes sizes(settings, where);
  require_used(adapter, sizes, where, modules_of(table, chosen, experts));
  warn_of_full_rank(settings, sizes, where, table, chosen);
  const auto num_rows = static_cast<int>(table.rows.size());
  Builder builder(settings, sizes, table);
  for (int first = 0; first < num_rows;) {
    const int last = std::min(end_of_range(table, first), num_rows);
    builder.add(first, last, chosen);
    first = last;
  }
  add_to_experts(experts, sizes, table);
  set_lr_ratios(settings, table);
}

model::Adapter adapter(const model::AdapterMath* math) {
  return {.name = "lora",
          .sentence = "low-rank matrices on top of frozen weights",
          .peft_type = model::peft_lora,
          .bind = bind,
          .rewrite = rewrite,
          .dropout = dropout,
          .read_peft = read_peft,
          .write_peft = write_peft,
          .keep_of_deck = keep_of_deck,
          .marks = {".lora_A.weight", ".lora_embedding_A"},
          // Programs that save PEFT's modules themselves leave the adapter's name in, and PEFT was
          // of two minds about DoRA's magnitudes.
          .endings = {{".lora_A.default.weight", ".lora_A.weight"},
                      {".lora_B.default.weight", ".lora_B.weight"},
                      {".lora_embedding_A.default", ".lora_embedding_A"},
                      {".lora_embedding_B.default", ".lora_embedding_B"},
                      {".lora_magnitude_vector.default.weight", ".lora_magnitude_vector"},
                      {".lora_magnitude_vector.default", ".lora_magnitude_vector"},
                      {".lora_magnitude_vector.weight", ".lora_magnitude_vector"}},
          .is_remedy = true,
          .cost = &cost(),
          .math = math};
}

}  // namespace finetune::adapters::lora
