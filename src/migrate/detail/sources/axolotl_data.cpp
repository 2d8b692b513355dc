// SPDX-License-Identifier: Apache-2.0
#include "migrate/detail/sources/axolotl_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"
#include "migrate/detail/sources/axolotl_kind.hpp"
#include "migrate/detail/sources/roles.hpp"
#include "migrate/detail/words.hpp"

namespace finetune::migrate {
namespace {

constexpr std::string_view one_template = "data.template is one for all data sets";

/// Keys of a data set that say nothing that a deck has to.
constexpr auto needless = std::to_array<std::string_view>({"name",
                                                           "type",
                                                           "path",
                                                           "split",
                                                           "ds_type",
                                                           "data_files",
                                                           "field",
                                                           "field_messages",
                                                           "message_property_mappings",
                                                           "message_field_role",
                                                           "message_field_content",
                                                           "message_field_training",
                                                           "roles",
                                                           "roles_to_train",
                                                           "train_on_eos",
                                                           "conversation",
                                                           "chat_template",
                                                           "text_column",
                                                           "field_system",
                                                           "field_tools",
                                                           "trust_remote_code",
                                                           "shards",
                                                           "shards_idx",
                                                           "preprocess_shards"});

/// data_files, where the path only names their format.
std::string path_of(const Node& set) {
  const Node* path = text_in_axolotl(set, "path");
  const Node* files = set.find("data_files");
  std::string file;
  if (files != nullptr && files->is_text()) file = files->text;
  if (files != nullptr && files->is_list() && files->items.size() == 1) file = files->items[0].text;
  if (file.empty()) return path == nullptr ? "" : path->text;
  constexpr auto builders = std::to_array<std::string_view>({"json", "parquet", "text", "csv"});
  const bool is_builder =
      path == nullptr || std::ranges::find(builders, path->text) != builders.end();
  return is_builder ? file : path->text + "/" + file;
}

void note_other_keys(const std::string& where, const Node& set, Draft& draft) {
  for (const auto& [key, value] : set.entries) {
    const bool is_known = std::ranges::find(needless, key) != needless.end();
    if (!is_known && !value.is_empty())
      draft.note(value.is_off() ? Kind::needless : Kind::differs,
                 fmt::format("{}.{} = {}", where, key, value.shown()),
                 key == "skip"
                     ? "data sets are read from their first record"
                     : "messages have a role, a content, reasoning and calls by their usual names");
  }
  const Node* eos = text_in_axolotl(set, "train_on_eos");
  if (eos != nullptr && eos->text != "turn")
    draft.note(Kind::differs, fmt::format("{}.train_on_eos = {}", where, eos->shown()),
               "the token that ends an answer is trained");
}

/// Whose messages are trained: here the model's, or all.
void take_trained_roles(const std::string& where, const Node& set, Draft& draft) {
  const Node* roles = set.find("roles_to_train");
  if (roles == nullptr || !(roles->is_list() || roles->is_text())) return;
  std::vector<std::string> of_model;
  if (const Node* names = set.find("roles.assistant")) of_model = names_in(*names);
  const auto is_of_model = [&](const std::string& name) {
    return data_role(name) == "assistant" || std::ranges::find(of_model, name) != of_model.end();
  };
  const std::vector<std::string> names = names_in(*roles);
  if (!names.empty() && std::ranges::all_of(names, is_of_model)) return;
  const std::string shown = fmt::format("{}.roles_to_train = {}", where, roles->shown());
  const std::string why =
      "trained are the model's answers, or with data.train_on = \"all\" everything";
  if (names.empty() || std::ranges::any_of(names, is_of_model))
    draft.note(Kind::differs, shown, why);
  else
    draft.stop(*roles, shown, why, "data.train_on=all");
}

/// One of several equal parts of it.
void take_shards(const std::string& where, const Node& set, bool validates, DataSet& out,
                 Draft& draft) {
  const Node* shards = set.find("shards");
  const auto number = shards == nullptr ? std::nullopt : shards->integer();
  if (!number || *number < 2) return;
  if (!validates) out.weight = 1 / static_cast<double>(*number);
  draft.note(Kind::differs, fmt::format("{}.shards = {}", where, *number),
             validates
                 ? "validation data are read whole"
                 : "data.weights reads as many samples as one shard has, in each epoch others");
}

/// One for all: the first that is named.
void take_own_template(const std::string& where, const Node& set, Draft& draft) {
  const Node* own = text_in_axolotl(set, "chat_template");
  if (own == nullptr) return;
  const std::string name = where + ".chat_template";
  const Fact* first = draft.fact("chat_template");
  if (first == nullptr)
    draft.remember("chat_template", name, *own);
  else if (first->value.text != own->text)
    draft.note(Kind::differs, fmt::format("{} = {}", name, own->shown()),
               std::string(one_template));
}

void take_sets(const Fact& fact, const std::string& usual, bool validates, Draft& draft) {
  for (const Node& set : fact.value.items) {
    DataSet out;
    out.path = path_of(set);
    if (out.path.empty()) {
      draft.stop(set, fact.name + ": a data set without a path", "there is nothing to read",
                 "data.path=FILE");
      continue;
    }
    if (const Node* split = text_in_axolotl(set, "split")) out.split = split->text;
    if (const Node* name = text_in_axolotl(set, "name")) out.subset = name->text;
    take_kind_of_axolotl(set, usual, out, draft);
    if (out.format == "chat") {
      take_trained_roles(fact.name, set, draft);
      take_own_template(fact.name, set, draft);
    }
    take_shards(fact.name, set, validates, out, draft);
    note_other_keys(fact.name, set, draft);
    if (validates)
      draft.add_validation(std::move(out));
    else
      draft.add_data(std::move(out));
  }
}

/// Conversations alone have one there.
void take_template_of_axolotl(Draft& draft) {
  const auto has = [&](std::string_view format) {
    return std::ranges::find(draft.data(), format, &DataSet::format) != draft.data().end();
  };
  const Fact* named = draft.fact("chat_template");
  if (named == nullptr) return;
  if (!has("chat")) {
    draft.note(Kind::needless, named->name, "instructions are written as Alpaca's");
    return;
  }
  const Word* word = find_word("data.template", named->value.text);
  const std::string shown = fmt::format("{} = {}", named->name, named->value.shown());
  if (!word->note.empty()) draft.note(Kind::differs, shown, std::string(word->note));
  // By itself each format is written in its own way, conversations in the model's.
  if (has("alpaca") && word->here == "model") return;
  draft.set("data.template", deck::to_toml(word->here), shown);
  if (has("alpaca"))
    draft.note(Kind::differs, shown, fmt::format("{}: it writes instructions, too", one_template));
}

/// Its default, if the file has none.
void take_warmup_of_axolotl(Draft& draft) {
  if (draft.fact("warmup_steps") != nullptr || draft.fact("warmup_ratio") != nullptr) return;
  const auto number = [](const char* text) { return Node{.kind = Node::Kind::text, .text = text}; };
  draft.remember("warmup_ratio", "the default of axolotl", number("0.03"));
  draft.remember("most_warmup", "the default of axolotl", number("100"));
}

/// Patterns of what is trained. Those of the whole text part leave out what is not there anyway.
void take_unfrozen(Draft& draft) {
  const Fact* fact = draft.fact("unfrozen");
  if (fact == nullptr) return;
  const bool is_all = std::ranges::any_of(fact->value.items, [](const Node& item) {
    return item.text.find("language_model.*") != std::string::npos;
  });
  if (is_all) {
    draft.note(Kind::needless, fact->name, "only the text part is there");
    return;
  }
  std::vector<std::string> patterns;
  for (const Node& item : fact->value.items) {
    // "NAME[:32000]" are some rows of a tensor.
    if (item.text.ends_with(']') && item.text.find(':', item.text.rfind('[')) != std::string::npos)
      draft.stop(item, fmt::format("{} = {}", fact->name, item.shown()),
                 "tensors are trained whole, but for the rows of new tokens beside an adapter",
                 "train.trainable=...");
    // They match where names begin.
    patterns.push_back(item.text.starts_with('^') ? item.text : "^(" + item.text + ")");
  }
  draft.set("train.trainable", deck::to_toml(patterns), fact->name);
}

}  // namespace

void read_axolotl(const Node&, Draft& draft) {
  if (const Fact* sets = draft.fact("datasets")) take_sets(*sets, "", false, draft);
  if (const Fact* sets = draft.fact("pretraining")) take_sets(*sets, "pretrain", false, draft);
  if (const Fact* sets = draft.fact("test_datasets")) take_sets(*sets, "", true, draft);
  take_template_of_axolotl(draft);
  if (draft.is_on("train_on_inputs"))
    draft.set("data.train_on", R"("all")", draft.fact("train_on_inputs")->name);
  const std::string excess = draft.text("excess_length");
  if (excess == "truncate" || excess == "drop")
    draft.set("data.on_overlong", deck::to_toml(excess), "excess_length_strategy");
  else
    draft.set("data.on_overlong", R"("drop")", "as axolotl does");
  take_unfrozen(draft);
  take_warmup_of_axolotl(draft);
  const std::string model = draft.text("model_class");
  if (model.find("Classification") != std::string::npos)
    draft.stop({}, "model_type = " + model, "classifiers are trained on labelled texts",
               "model.problem_type=...");
}

}  // namespace finetune::migrate
