#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an adapter provides; one descriptor each in modules/adapters. And the table [adapter].

#include <any>
#include <map>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "deck/deck.hpp"
#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "model/peft_options.hpp"

namespace finetune::model {

struct Adapter;

/// What is common to all adapters, and the options of each kind. The names are those of PEFT.
struct AdapterSettings {
  std::string name = "none";
  const Adapter* kind = nullptr;  ///< the one of that name, once the deck is read
  std::string path;
  std::vector<std::string> target_modules = {"all-linear"};
  std::vector<std::string> exclude_modules = {};
  std::vector<double> layers_to_transform = {};  ///< whole numbers; none: all
  std::vector<std::string> modules_to_save = {};
  bool double_quant = true;  ///< of frozen weights that the adapter lets be quantised

  /// The options of a kind: a struct of its own that can be copied, with its defaults until they
  /// are changed.
  template <typename Options>
  Options& of() {
    std::any& options = options_[typeid(Options)];
    if (!options.has_value()) options = Options();
    return std::any_cast<Options&>(options);
  }
  template <typename Options>
  Options of() const {
    const auto found = options_.find(typeid(Options));
    return found == options_.end() ? Options() : std::any_cast<const Options&>(found->second);
  }

  /// Keys that the chosen adapter does not read are problems of the deck. `kinds` outlives the
  /// settings.
  void bind(deck::Table& table, const std::vector<Adapter>& kinds);

  bool exists() const { return name != "none"; }

 private:
  std::map<std::type_index, std::any> options_;
};

/// Keys, table, cost, computation, PEFT's files and merging are what it says; elsewhere an adapter
/// is a name in advice at most.
struct Adapter {
  std::string name;
  std::string sentence;  ///< about it, for the reference, without a full stop
  std::string peft_type;
  /// adapter.target_modules where the deck has none.
  std::vector<std::string> usual_targets = {"all-linear"};

  /// Binds the options of its kind. Adapters may share the function, and so the keys.
  void (*bind)(AdapterSettings& settings, deck::Table& table);

  /// Turns a table of a model into that of the model with an adapter: freezes, marks what is to be
  /// packed, and adds the adapter's rows behind the others, in a unit of their own. `where` begins
  /// messages; without it nothing is warned of. Throws: ErrorKind::deck, naming what is not in the
  /// model.
  void (*rewrite)(const AdapterSettings& settings, const std::string& where, ParameterTable& table);

  /// Fraction of its inputs that training drops; nullptr: it drops nothing.
  double (*dropout)(const AdapterSettings& settings) = nullptr;

  /// adapter_config.json: its options into `settings` (name, path, targets and modules_to_save are
  /// there already), and back into `config` for the modules `adapted`. Reading throws
  /// ErrorKind::input for options that are not done here.
  void (*read_peft)(const PeftOptions& options, AdapterSettings& settings);
  void (*write_peft)(const AdapterSettings& settings, const std::vector<std::string>& adapted,
                     core::Json& config);
  /// Options that PEFT's files do not have, as they are about training alone: from `deck` into the
  /// settings of an adapter that is gone on from. nullptr: there are none.
  void (*keep_of_deck)(const AdapterSettings& deck, AdapterSettings& settings) = nullptr;
  /// Endings of its tensors' names, of which every adapted module has one.
  std::vector<std::string> marks = {};
  /// Other endings in files, with the usual ones.
  std::vector<std::pair<std::string, std::string>> endings = {};

  bool packs_weights = false;  ///< reads adapter.double_quant
  /// Advised where all weights do not fit.
  bool is_remedy = false;
  /// Usual learning rates as a multiple of LoRA's, which are the best known.
  double usual_lr = 1;

  const AdapterCost* cost = nullptr;
  const AdapterMath* math = nullptr;
};

/// The one that is called `name`; nullptr: there is none.
const Adapter* find_adapter(const std::vector<Adapter>& kinds, const std::string& name);

/// Fraction of its inputs that training drops.
double dropout_of(const AdapterSettings& settings);

/// `rewrite`, and who computes with the rows that it added.
void put_on(const Adapter& adapter, const AdapterSettings& settings, const std::string& where,
            ParameterTable& table);

/// "adapter.KEY" and value, as in TOML, of the keys that the adapter's `bind` binds.
std::vector<std::pair<std::string, std::string>> own_values(const Adapter& adapter,
                                                            const AdapterSettings& settings);

/// The unit of all adapter rows.
inline constexpr const char* adapter_unit = "adapters";
/// How PEFT's files begin the names of what they hold.
inline constexpr const char* peft_prefix = "base_model.model.";

}  // namespace finetune::model
