#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which rows of a model an adapter changes and which are trained whole: what every kind of adapter
// begins with.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/adapter.hpp"
#include "model/module_pattern.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// Whether it is a matrix that every token passes: what adapters may change.
bool can_be_adapted(const Parameter& row);

/// What PEFT calls low-rank adapters.
inline constexpr const char* peft_lora = "LORA";

/// Whether it is the matrix behind a layer's state space, which PEFT lets no low-rank part have:
/// "all-linear" does not mean it.
bool is_out_of_state_space(const ParameterTable& table, int row);

/// What an adapter may change besides, where adapter.target_modules names it.
struct Adaptable {
  bool vocabulary = false;  ///< embedding and head
  bool others = false;      ///< something is adapted that target_modules does not name
};

/// By row, whether it is a matrix that adapter.target_modules names, and that neither
/// adapter.exclude_modules nor adapter.layers_to_transform leaves out; all rows of `table` are
/// frozen but those of adapter.modules_to_save. `where` begins messages; without it nothing is
/// warned of. Throws: ErrorKind::deck, naming what is not in the model, cannot be adapted, or is
/// named twice; ErrorKind::input for an expression that is none.
std::vector<bool> freeze_all_but_targets(const AdapterSettings& settings, const std::string& where,
                                         ParameterTable& table, const Adaptable& besides = {});

/// Modules of the rows that `chosen` says yes to, under all their names.
std::vector<std::string> modules_of(const ParameterTable& table, const std::vector<bool>& chosen);

/// A row of an adapter: it has dim `shared_dim` of the row that it adapts, and is split with it.
struct PartShape {
  std::vector<std::int64_t> shape;
  std::size_t shared_dim = 0;
  std::optional<std::size_t> own_dim = {};  ///< which of its own that is, if not the same
  Init init = Init::zeros;
  bool decayed = true;
};

/// Adds one on top of `row`, in the last unit; `suffix` follows the module in its name. Returns its
/// index.
int add_part(ParameterTable& table, int row, const char* suffix, const PartShape& part);

/// A name of `key` that means no module, with the nearest of `known`.
[[noreturn]] void fail_unknown_module(const std::string& where, const char* key,
                                      const std::string& name, const std::string& why,
                                      const std::vector<std::string>& known);

}  // namespace finetune::model
