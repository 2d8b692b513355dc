// SPDX-License-Identifier: Apache-2.0
// The chat template of a run in its export, so that other programs write conversations as it did.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/error.hpp"
#include "core/log.hpp"
#include "data/records/records.hpp"
#include "data/text/chat_template.hpp"
#include "data/text/model_template.hpp"
#include "deck/deck.hpp"
#include "export.hpp"
#include "jinja/value.hpp"
#include "tokenizer/tokenizer.hpp"
#include "weights/folder.hpp"

namespace finetune::app {
namespace {

constexpr std::int64_t largest_text_bytes = 16 << 20;

/// The template that the deck of the run named; nullptr if it named none.
const data::ChatTemplate* template_of(const ExportJob& job) {
  const checkpoint::Texts& fixed = job.found.state.fixed;
  const auto named = fixed.find("data.template");
  if (named == fixed.end()) return nullptr;
  const auto found = std::ranges::find_if(
      job.registry.templates,
      [&](const data::ChatTemplate& chat) { return '"' + chat.name + '"' == named->second; });
  return found == job.registry.templates.end() ? nullptr : &*found;
}

/// data.template_kwargs of the run's deck.
data::OrderedJson kwargs_of(const ExportJob& job) {
  data::OrderedJson kwargs;
  const checkpoint::Texts& fixed = job.found.state.fixed;
  const auto there = fixed.find("data.template_kwargs");
  if (there == fixed.end()) return kwargs;
  deck::Deck deck(fmt::format("[data]\ntemplate_kwargs = {}\n", there->second),
                  job.found.folder.string(), {});
  deck.table("data", "The data of the run.")
      .values({.name = "template_kwargs",
               .restart = deck::Restart::fixed,
               .sentence = "Names that the chat template is given."},
              kwargs);
  deck.finish();
  return kwargs;
}

/// Those of the model's folder; none where they cannot be read, so that no run had them.
data::ModelTemplates templates_of_model(const ExportJob& job) {
  try {
    return data::model_templates(job.model_folder);
  } catch (const core::Error&) {
    return {};
  }
}

/// A file of the model's folder as JSON that keeps its order and the digits of its numbers; nothing
/// if it is not there, or is none.
std::optional<data::OrderedJson> json_of(const ExportJob& job, const std::string& name) {
  if (!weights::is_in_folder(job.model_folder, name)) return std::nullopt;
  const std::string text = weights::read_text_in_folder(job.model_folder, name, largest_text_bytes);
  auto json = core::ordered_json(text, (job.model_folder / name).string());
  if (!json.is_object()) return std::nullopt;
  return json;
}

std::string text_of(const data::OrderedJson& json) {
  return jinja::to_json(jinja::Value::from_json(json), {.indent = 2}) + "\n";
}

/// What ends a text, and what ends an answer.
struct Ends {
  std::optional<std::int32_t> eos;
  std::int32_t stop;
};

/// Nothing if nothing but the tokenizer's end token ends an answer.
std::optional<Ends> ends_of(const ExportJob& job, const data::ChatTemplate& named) {
  try {
    const auto tokenizer = tokenizer::Tokenizer::load(job.model_folder);
    const auto eos = tokenizer.find_eos_id();
    const data::ChatTemplate chat =
        data::choose_template(named.name, job.model_folder, tokenizer, job.registry.templates);
    const auto stop = tokenizer.id(chat.stop);
    if (!stop || stop == eos) return std::nullopt;
    return Ends{eos, *stop};
  } catch (const core::Error& error) {
    log::warn(
        fmt::format("the tokenizer of {} cannot be read, so generation_config.json does not "
                    "say what ends an answer of the template \"{}\" ({})",
                    job.model_folder.string(), named.name, error.what()));
    return std::nullopt;
  }
}

/// generation_config.json with both among the tokens that end a text.
std::string with_ends(data::OrderedJson config, const Ends& ends) {
  data::OrderedJson& ids = config["eos_token_id"];
  if (ids.is_number_integer()) ids = data::OrderedJson::array({ids});
  if (!ids.is_array()) ids = data::OrderedJson::array();
  if (ids.empty() && ends.eos) ids.push_back(*ends.eos);
  if (std::ranges::find(ids, data::OrderedJson(ends.stop)) == ids.end()) ids.push_back(ends.stop);
  return text_of(config);
}

/// Programs that know one of the older places must not find another template there.
void add_to_older_places(const ExportJob& job, std::map<std::string, std::string>& texts,
                         const std::function<void(data::OrderedJson& config)>& change) {
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    auto config = json_of(job, name);
    if (!config) continue;
    const data::OrderedJson before = *config;
    change(*config);
    if (*config != before) texts[name] = text_of(*config);
  }
}

/// The model's own templates, with the run's names for them as their defaults.
void add_own_templates(const ExportJob& job, const data::OrderedJson& kwargs, bool is_whole_model,
                       std::map<std::string, std::string>& texts) {
  const data::ModelTemplates own = templates_of_model(job);
  bool differs = false;
  const auto add = [&](const std::string& name, const std::string& text) {
    texts[name] = data::with_defaults(text, kwargs);
    differs = differs || texts[name] != text;
  };
  if (own.standard) add("chat_template.jinja", *own.standard);
  for (const auto& [name, text] : own.named)
    // A name of a list may be that of no file.
    if (std::filesystem::path(name).filename() == name)
      add(fmt::format("additional_chat_templates/{}.jinja", name), text);
  if (!differs) {
    std::erase_if(texts, [](const auto& file) { return file.first.ends_with(".jinja"); });
    return;
  }
  log::info("the model's chat template has data.template_kwargs of the run as its defaults");
  if (!is_whole_model) return;
  add_to_older_places(job, texts, [&](data::OrderedJson& config) {
    const auto found = config.find("chat_template");
    if (found == config.end()) return;
    const auto change = [&](data::OrderedJson& text) {
      if (text.is_string()) text = data::with_defaults(text.get<std::string>(), kwargs);
    };
    change(*found);
    if (!found->is_array()) return;
    for (data::OrderedJson& each : *found)
      if (each.is_object() && each.contains("template")) change(each["template"]);
  });
}

}  // namespace

void add_chat_template(const ExportJob& job, bool is_whole_model,
                       std::map<std::string, std::string>& texts) {
  const data::OrderedJson kwargs = kwargs_of(job);
  const data::ChatTemplate* chat = template_of(job);
  if (chat == nullptr) {
    if (!kwargs.empty()) add_own_templates(job, kwargs, is_whole_model, texts);
    return;
  }
  const std::string jinja = data::with_defaults(data::without_marks(chat->text), kwargs);
  if (templates_of_model(job).standard == jinja) return;
  texts["chat_template.jinja"] = jinja;
  log::info(fmt::format("chat_template.jinja is the template \"{}\" of the run", chat->name));
  if (!is_whole_model) return;
  add_to_older_places(job, texts,
                      [&](data::OrderedJson& config) { config["chat_template"] = jinja; });
  const auto ends = ends_of(job, *chat);
  if (!ends) return;
  const char* generation = "generation_config.json";
  const auto written = texts.find(generation);
  const auto config = written != texts.end()
                          ? std::optional(data::OrderedJson::parse(written->second))
                          : json_of(job, generation);
  texts[generation] = with_ends(config.value_or(data::OrderedJson::object()), *ends);
}

}  // namespace finetune::app
