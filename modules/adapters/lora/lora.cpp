// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/lora.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "model/low_rank_sizes.hpp"
#include "model/names.hpp"

namespace finetune::adapters::lora {
namespace {

using model::Init;
using model::module_of;
using model::Parameter;
using model::ParameterTable;
using model::Role;

constexpr std::string_view all_linear = "all-linear";
/// What models call a head of their own.
constexpr const char* tied_head = "lm_head";

/// As PEFT matches: the whole name, or its end behind a point.
bool is_named(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

bool can_be_adapted(const Parameter& row) {
  return row.role == Role::linear && row.shape.size() == 2;
}

/// Last parts of the names of modules that `is_fit` says yes to, each once.
template <typename IsFit>
std::vector<std::string> ends_of(const ParameterTable& table, const IsFit& is_fit) {
  std::set<std::string> ends;
  for (const Parameter& row : table.rows) {
    if (!is_fit(row)) continue;
    const std::string module = module_of(row.name);
    ends.insert(module.substr(module.rfind('.') + 1));
  }
  return {ends.begin(), ends.end()};
}

[[noreturn]] void fail_unknown(const std::string& where, const char* key, const std::string& name,
                               const std::string& why, const std::vector<std::string>& known) {
  const auto near = core::nearest(name, known);
  core::fail(core::ErrorKind::deck,
             {where, fmt::format("adapter.{} names \"{}\"", key, name),
              fmt::format("{}; there are {}", why, fmt::join(known, ", ")),
              near ? fmt::format("Did you mean \"{}\"?", *near) : "Use some of these."});
}

void require_names(const std::vector<std::string>& names, const char* key,
                   const std::string& where) {
  if (std::ranges::find(names, "") == names.end()) return;
  core::fail(core::ErrorKind::deck, {where, fmt::format("adapter.{} names \"\"", key),
                                     "that is no module's name", "Leave it out."});
}

/// A head that is the embedding cannot be named as a module of its own.
void refuse_tied_head(const std::string& where, const char* key, const std::string& name,
                      const ParameterTable& table) {
  const auto row_of = [&](Role role) {
    return std::ranges::find(table.rows, role, &Parameter::role);
  };
  const auto embedding = row_of(Role::embedding);
  if (!is_named(tied_head, name) || embedding == table.rows.end() ||
      row_of(Role::head) != table.rows.end())
    return;
  const std::string module = module_of(embedding->name);
  const std::string end = module.substr(module.rfind('.') + 1);
  core::fail(core::ErrorKind::deck,
             {where, fmt::format("adapter.{} names \"{}\"", key, name),
              fmt::format("in this model the head is the embedding, {}: they are tied", end),
              fmt::format("Name {} in adapter.modules_to_save to train both.", end)});
}

/// A low-rank part of full rank costs more than the matrix and limits nothing.
void warn_of_full_rank(const model::AdapterSettings& settings, const model::LowRankSizes& sizes,
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
  const bool is_usual = rank(*smallest) == settings.lora_r;
  log::warn(core::to_string(
      {where, fmt::format("adapter.{} = {}", is_usual ? "lora_r" : "rank_pattern", rank(*smallest)),
       fmt::format("{} has only {} {}: its low-rank part holds more numbers than it",
                   smallest->name, side(*smallest),
                   smallest->shape[0] <= smallest->shape[1] ? "rows" : "columns"),
       "Lower it, or train without an adapter."}));
}

/// A pattern of the deck that means nothing is a mistake; PEFT's files may hold such.
void require_used(const model::AdapterSettings& settings, const model::LowRankSizes& sizes,
                  const std::string& where, const ParameterTable& table,
                  const std::vector<bool>& chosen) {
  if (where.empty() || !settings.path.empty()) return;
  std::vector<std::string> modules;
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    if (chosen[i]) modules.push_back(module_of(table.rows[i].name));
  const auto unused = sizes.unused(modules);
  if (unused.empty()) return;
  core::fail(core::ErrorKind::deck,
             {where,
              fmt::format("adapter.rank_pattern or adapter.alpha_pattern holds \"{}\"",
                          core::one_line(unused.front())),
              "no module with a low-rank part has such a name",
              fmt::format("Write a name such as {}, or its end.", modules.front())});
}

/// A name may mean matrices that get a low-rank part and experts, which get none.
void warn_of_experts(const model::AdapterSettings& settings, const std::string& where,
                     const ParameterTable& table) {
  if (where.empty()) return;
  for (const std::string& name : settings.target_modules) {
    std::int64_t num_left = 0;
    for (const Parameter& row : table.rows) {
      if (row.role == Role::expert && is_named(module_of(row.name), name))
        num_left += row.shape.size() == 3 ? row.shape[0] : 1;
    }
    if (num_left == 0) continue;
    log::warn(core::to_string(
        {where, fmt::format("adapter.target_modules names \"{}\"", name),
         fmt::format("{} matrices of experts of that name stay as they are", num_left),
         "Only those outside of experts get a low-rank part."}));
  }
}

/// Why a module that is there gets no low-rank part.
std::string why_not(const ParameterTable& table, const std::string& name) {
  for (const Parameter& row : table.rows) {
    if (!is_named(module_of(row.name), name)) continue;
    if (row.role == Role::expert || row.role == Role::router)
      return "experts and their routers stay as they are";
    if (row.role == Role::embedding || row.role == Role::head)
      return "embedding and head are trained in full, by adapter.modules_to_save";
    return "it is no matrix";
  }
  return "the model has no such module";
}

std::vector<bool> targets(const model::AdapterSettings& settings, const std::string& where,
                          const ParameterTable& table) {
  std::vector<bool> chosen(table.rows.size(), false);
  for (const std::string& name : settings.target_modules) {
    bool is_found = false;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Parameter& row = table.rows[i];
      if (!can_be_adapted(row) || !(name == all_linear || is_named(module_of(row.name), name)))
        continue;
      chosen[i] = is_found = true;
    }
    if (is_found) continue;
    refuse_tied_head(where, "target_modules", name, table);
    auto known = ends_of(table, can_be_adapted);
    known.emplace_back(all_linear);
    fail_unknown(where, "target_modules", name, why_not(table, name), known);
  }
  if (settings.target_modules.empty())
    core::fail(core::ErrorKind::deck,
               {where, "adapter.target_modules is empty", "then nothing would be adapted",
                "Name modules, or all-linear."});
  return chosen;
}

/// Thaws the modules that are trained whole.
void thaw(const model::AdapterSettings& settings, const std::string& where, ParameterTable& table) {
  const auto has_name = [](const Parameter& row) { return row.adapts < 0; };
  for (const std::string& name : settings.modules_to_save) {
    bool is_found = false;
    for (Parameter& row : table.rows) {
      if (!module_of(row.name).ends_with(name)) continue;  // so PEFT matches these
      if (!row.packing.is_dense())
        core::fail(core::ErrorKind::deck,
                   {where, fmt::format("adapter.modules_to_save names \"{}\"", name),
                    "it is kept in 4 bits, which cannot be trained", "Leave it out."});
      row.trainable = is_found = true;
    }
    if (is_found) continue;
    refuse_tied_head(where, "modules_to_save", name, table);
    fail_unknown(where, "modules_to_save", name, "the model has no such module",
                 ends_of(table, has_name));
  }
}

class Builder {
 public:
  Builder(const model::AdapterSettings& settings, const model::LowRankSizes& sizes,
          ParameterTable& table)
      : settings_(settings),
        sizes_(sizes),
        table_(table),
        unit_(static_cast<int>(table.units.size())) {
    table.units.emplace_back(model::adapter_unit);
  }

  /// Rows [first, last) may be read as one matrix: their A follow each other, then their B.
  void add(int first, int last, const std::vector<bool>& chosen) {
    std::vector<int> rows;
    for (int i = first; i < last; ++i)
      if (chosen[static_cast<std::size_t>(i)]) rows.push_back(i);
    for (const int i : rows)
      at(i).low_rank.a =
          add_part(i, ".lora_A.weight", {rank(i), at(i).shape[1]}, Init::fan_in, true, 1);
    for (const int i : rows)
      at(i).low_rank.b =
          add_part(i, ".lora_B.weight", {at(i).shape[0], rank(i)}, Init::zeros, true, 0);
    for (const int i : rows) {
      at(i).low_rank.scale = sizes_.scale(module_of(at(i).name));
      if (settings_.use_dora)
        at(i).low_rank.magnitude =
            add_part(i, ".lora_magnitude_vector", {at(i).shape[0]}, Init::row_norms, false, 0);
    }
  }

 private:
  Parameter& at(int row) { return table_.rows[static_cast<std::size_t>(row)]; }
  std::int64_t rank(int row) { return sizes_.rank(module_of(at(row).name)); }

  /// The part has dim `shared_dim` of the row, and is split with it.
  int add_part(int row, const char* suffix, std::vector<std::int64_t> shape, Init init,
               bool decayed, std::size_t shared_dim) {
    Parameter part{.name = model::peft_prefix + module_of(at(row).name) + suffix,
                   .shape = std::move(shape),
                   .unit = unit_,
                   .decayed = decayed,
                   .init = init};
    part.stage = at(row).stage;
    part.adapts = row;
    if (at(row).split && at(row).split->dim == shared_dim) part.split = at(row).split;
    table_.rows.push_back(std::move(part));
    return static_cast<int>(table_.rows.size()) - 1;
  }

  const model::AdapterSettings& settings_;
  const model::LowRankSizes& sizes_;
  ParameterTable& table_;
  int unit_;
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

}  // namespace

void rewrite(const model::AdapterSettings& settings, const std::string& where,
             ParameterTable& table) {
  require_names(settings.target_modules, "target_modules", where);
  require_names(settings.modules_to_save, "modules_to_save", where);
  const std::vector<bool> chosen = targets(settings, where, table);
  warn_of_experts(settings, where, table);
  for (Parameter& row : table.rows)
    row.trainable = false;
  thaw(settings, where, table);
  const auto num_rows = static_cast<int>(table.rows.size());
  for (int i = 0; i < num_rows; ++i) {
    if (chosen[static_cast<std::size_t>(i)] && table.row(i).trainable)
      core::fail(core::ErrorKind::deck,
                 {where, fmt::format("{} is adapted and trained in full", table.row(i).name),
                  "adapter.target_modules and adapter.modules_to_save both name it",
                  "Name it in one of them."});
  }
  const model::LowRankSizes sizes(settings, where);
  require_used(settings, sizes, where, table, chosen);
  warn_of_full_rank(settings, sizes, where, table, chosen);
  Builder builder(settings, sizes, table);
  for (int first = 0; first < num_rows;) {
    const int last = std::min(end_of_range(table, first), num_rows);
    builder.add(first, last, chosen);
    first = last;
  }
}

model::Adapter adapter() {
  return {.name = "lora", .rewrite = rewrite};
}

}  // namespace finetune::adapters::lora
