// SPDX-License-Identifier: Apache-2.0
#include "migrate/detail/sources/llama_factory_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "deck/value.hpp"
#include "migrate/detail/sources/notes.hpp"
#include "migrate/detail/sources/roles.hpp"
#include "migrate/detail/words.hpp"

namespace finetune::migrate {
namespace {

std::vector<std::string> names_in_list(const std::string& list) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  while (begin < list.size()) {
    const std::size_t end = std::min(list.find_first_of(", ", begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

/// Columns of an entry of dataset_info.json.
void take_columns_of_llama_factory(const Node& entry, DataSet& set) {
  constexpr auto rows = std::to_array<std::pair<const char*, const char*>>(
      {{"columns.prompt", "data.prompt_column"},
       {"columns.query", "data.input_column"},
       {"columns.response", "data.answer_column"},
       {"columns.system", "data.system_column"},
       {"columns.tools", "data.tools_column"},
       {"columns.history", "data.columns.history"},
       {"columns.messages", "data.conversation_column"}});
  for (const auto& [theirs, ours] : rows) {
    const Node* column = entry.find(theirs);
    const bool fits =
        (set.format == "chat") == (ours == std::string_view("data.conversation_column"));
    const bool is_both = ours == std::string_view("data.system_column") ||
                         ours == std::string_view("data.tools_column");
    if (column != nullptr && column->is_text() && (fits || is_both))
      set.columns[ours] = column->text;
  }
}

/// What its messages call their fields and roles.
void take_tags_of_llama_factory(const Node& entry, DataSet& set) {
  constexpr auto fields = std::to_array<std::pair<const char*, const char*>>(
      {{"tags.role_tag", "data.message_fields.role"},
       {"tags.content_tag", "data.message_fields.content"}});
  for (const auto& [theirs, ours] : fields) {
    const Node* tag = entry.find(theirs);
    if (tag == nullptr || !tag->is_text() || tag->is_empty()) continue;
    if (tag->text != "role" && tag->text != "from" && tag->text != "content" &&
        tag->text != "value")
      set.columns[ours] = tag->text;
  }
  constexpr auto roles =
      std::to_array<std::pair<const char*, const char*>>({{"tags.user_tag", "user"},
                                                          {"tags.assistant_tag", "assistant"},
                                                          {"tags.observation_tag", "tool"},
                                                          {"tags.function_tag", "function_call"},
                                                          {"tags.system_tag", "system"}});
  for (const auto& [theirs, role] : roles) {
    const Node* tag = entry.find(theirs);
    if (tag == nullptr || !tag->is_text() || tag->is_empty()) continue;
    if (data_role(tag->text) != role) set.columns[std::string("data.roles.") + role] = tag->text;
  }
}

/// What an index says of a data set.
DataSet set_of_llama_factory(const std::string& name, const std::string& folder, const Node& entry,
                             Draft& draft) {
  DataSet set;
  const auto text = [&](const char* key) {
    const Node* value = entry.find(key);
    return value != nullptr && value->is_text() ? value->text : std::string();
  };
  const std::string formatting = text("formatting") + text("converter");
  const Node* ranks = entry.find("ranking");
  if (formatting == "pair" || (ranks != nullptr && !ranks->is_off()))
    draft.stop({}, "data set " + name, "it is about preferences", "data.format=auto");
  for (const char* column : {"columns.images", "columns.videos", "columns.audios"}) {
    if (entry.find(column) != nullptr)
      draft.stop({}, "data set " + name, "images and sound are not read", "data.path=FILE");
  }
  set.format = formatting.empty() || formatting == "alpaca" ? "alpaca" : "chat";
  set.path = folder + "/" + name;
  if (!text("file_name").empty()) set.path = folder + "/" + text("file_name");
  if (!text("hf_hub_url").empty()) set.path = text("hf_hub_url");
  if (!text("path").empty()) set.path = text("path");
  if (!text("split").empty()) set.split = text("split");
  set.subset = text("subset");
  take_columns_of_llama_factory(entry, set);
  if (set.format == "chat") take_tags_of_llama_factory(entry, set);
  return set;
}

std::optional<Node> read_index(const std::string& path, Draft& draft) {
  const auto text = draft.options().read_named ? draft.options().read_named(path) : std::nullopt;
  if (!text) return std::nullopt;
  return yaml::read(*text, path);
}

std::vector<DataSet> sets_of(const Fact& fact, Draft& draft) {
  std::string folder = draft.text("dataset_dir");
  if (folder.empty() || folder.starts_with("REMOTE:")) folder = "data";
  const std::string index_path = folder + "/dataset_info.json";
  const auto index = read_index(index_path, draft);
  std::vector<DataSet> sets;
  std::vector<std::string> unknown;
  for (const std::string& name : names_in_list(fact.value.text)) {
    const Node* entry = index ? index->find(name) : nullptr;
    if (entry == nullptr) unknown.push_back(name);
    sets.push_back(entry == nullptr ? DataSet{.path = name}
                                    : set_of_llama_factory(name, folder, *entry, draft));
  }
  if (!unknown.empty())
    draft.note(
        Kind::differs, fmt::format("{} = {}", fact.name, fact.value.shown()),
        fmt::format("names of {}, which is not here or does not have them: write their files "
                    "into data.path",
                    index_path));
  return sets;
}

/// Version 1: a file with an entry for each data set.
void take_file(Draft& draft) {
  const Fact* fact = draft.fact("dataset_file");
  if (fact == nullptr) return;
  const std::string& path = fact->value.text;
  const bool is_index = path.ends_with(".yaml") || path.ends_with(".yml");
  const auto index = is_index ? read_index(path, draft) : std::nullopt;
  if (!index) {
    draft.add_data({.path = path});
    if (is_index)
      draft.note(Kind::differs, "train_dataset = " + fact->value.shown(),
                 "the file is not here: write the files that it names into data.path");
    return;
  }
  for (const auto& [name, entry] : index->entries)
    draft.add_data(set_of_llama_factory(name, "data", entry, draft));
}

void take_template_of_llama_factory(Draft& draft) {
  const Fact* named = draft.fact("template");
  const std::string name = named == nullptr ? "" : named->value.text;
  // Its other templates write system messages of their own.
  constexpr auto same =
      std::to_array<std::string_view>({"alpaca", "chatml", "llama2", "llama3", "llama4"});
  const bool is_same = std::ranges::find(same, name) != same.end();
  draft.set("data.template", is_same ? deck::to_toml(name) : R"("model")",
            named == nullptr ? "" : fmt::format("{} = {}", named->name, name));
  if (!is_same && !name.empty())
    draft.note(Kind::differs, fmt::format("{} = {}", named->name, named->value.shown()),
               std::string(find_word("data.template", "*")->note));
}

void take_stage(Draft& draft) {
  const Fact* stage = draft.fact("stage");
  const std::string name = stage == nullptr ? "sft" : stage->value.text;
  if (name == "pt") draft.set("data.format", R"("text")", "stage = pt");
  if (name != "sft" && name != "pt")
    draft.stop(stage->value, "stage = " + stage->value.shown(),
               "the loss is that of the next token, or of labels", "model.problem_type=causal_lm");
  const Fact* model = draft.fact("model_class");
  if (model != nullptr && model->value.text != "llm")
    draft.stop(model->value, "model_class = " + model->value.shown(),
               "models continue text, or tell labels", "model.problem_type=causal_lm");
}

}  // namespace

void read_llama_factory(const Node& root, Draft& draft) {
  const bool is_version_1 =
      root.find("model_name_or_path") == nullptr && root.find("model") != nullptr;
  const auto usual = [&](const char* fact, const char* value) {
    if (draft.fact(fact) == nullptr)
      draft.remember(fact, "the default of LLaMA-Factory",
                     Node{.kind = Node::Kind::text, .text = value});
  };
  if (!is_version_1) {
    usual("micro_batch", "8");
    usual("epochs", "3");
    usual("adapter", "lora");
  } else if (draft.text("dist").find("fsdp") != std::string::npos) {
    draft.set("parallel.sharding", R"("FULL_SHARD")", "dist_config.name");
  }
  take_stage(draft);
  if (const Fact* names = draft.fact("dataset"))
    for (DataSet& set : sets_of(*names, draft))
      draft.add_data(std::move(set));
  if (const Fact* names = draft.fact("eval_dataset"))
    for (DataSet& set : sets_of(*names, draft))
      draft.add_validation(std::move(set));
  take_file(draft);
  take_template_of_llama_factory(draft);
  const std::pair<const char*, const char*> lists[] = {
      {"additional_target", "adapter.modules_to_save"},
      {"add_tokens", "model.add_tokens"},
      {"add_special_tokens", "model.add_special_tokens"}};
  for (const auto& [name, key] : lists)
    if (const Fact* list = draft.fact(name))
      draft.set(key, deck::to_toml(names_in_list(list->value.text)), list->name);
  if (draft.is_on("train_on_inputs"))
    draft.set("data.train_on", R"("all")", draft.fact("train_on_inputs")->name);
  // Whatever its name of an optimizer is.
  if (draft.is_on("muon")) {
    draft.drop("optimizer.name");
    draft.set("optimizer.name", R"("muon")", draft.fact("muon")->name);
  }
  // Twice the rank, where nothing is said.
  const auto rank = Node{.kind = Node::Kind::text, .text = draft.value("adapter.lora_r")}.integer();
  draft.set("adapter.lora_alpha", deck::to_toml(2.0 * static_cast<double>(rank.value_or(8))),
            "twice the rank, as LLaMA-Factory does");
}

}  // namespace finetune::migrate
