// SPDX-License-Identifier: Apache-2.0
#include "data/text/model_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "data/text/detail/model_chat.hpp"
#include "data/text/jinja.hpp"
#include "deck/suggest.hpp"

namespace finetune::data {
namespace {

// Templates with descriptions of tools in them make these files long.
constexpr std::int64_t limit_bytes = 16 << 20;

std::optional<std::string> template_in(const core::Json& config, const std::string& file,
                                       const std::string& key) {
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const core::Json& each : *found) {
      if (!each.is_object() || each.value("name", core::Json()) != "default") continue;
      const auto text = each.find("template");
      if (text != each.end() && text->is_string()) return text->get<std::string>();
    }
  }
  core::fail(
      core::ErrorKind::input,
      {file, "\"chat_template\" is neither a text nor a list with one named \"default\"",
       "it says how a conversation is written for the model", "Name a template in " + key + "."});
}

/// One way to write what can be written in several.
std::string normalised(std::string_view jinja) {
  std::string text;
  for (const char c : jinja) {
    const bool is_space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (is_space && (text.empty() || text.back() == ' ')) continue;
    text += is_space ? ' ' : c == '"' ? '\'' : c;
  }
  if (text.ends_with(' ')) text.pop_back();
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> same = {
      {{" + ", "+"},
       {"+ ", "+"},
       {" +", "+"},
       {" | ", "|"},
       {"['role']", ".role"},
       {"['content']", ".content"},
       {"{%- ", "{% "},
       {" -%}", " %}"}}};
  for (const auto& [from, to] : same) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at))
      text.replace(at, from.size(), to);
  }
  return text;
}

std::vector<std::string> names_of(std::span<const ChatTemplate> templates) {
  std::vector<std::string> names;
  for (const ChatTemplate& chat : templates)
    names.push_back(chat.name);
  return names;
}

/// The model's own, as it is: none of the known ones stands for it.
ChatTemplate as_it_is(const std::string& jinja, const tokenizer::Tokenizer& tokenizer,
                      const std::filesystem::path& folder, const std::string& known,
                      const std::string& key) {
  const auto written = [&](std::optional<std::int32_t> id) -> std::string {
    if (!id) return "";
    return tokenizer.decode(std::span<const std::int32_t>(&*id, 1), false);
  };
  ChatTemplate chat;
  chat.name = "the model's own";
  chat.text = jinja;
  try {
    chat.model = std::make_shared<const ModelChat>(jinja, written(tokenizer.bos_id()),
                                                   written(tokenizer.find_eos_id()));
  } catch (const jinja::Problem& problem) {
    core::fail(
        core::ErrorKind::input,
        {folder.string(),
         fmt::format("the model's chat template cannot be read: {}", problem.what()), "",
         fmt::format("If one of {} writes conversations as the model expects, name it in {}.",
                     known, key)});
  }
  chat.stop =
      chat.model->stop([&](std::string_view text) { return tokenizer.names_special(text); });
  return chat;
}

ChatTemplate of_model(const std::filesystem::path& folder, const tokenizer::Tokenizer& tokenizer,
                      std::span<const ChatTemplate> templates, const std::string& key) {
  const auto jinja = model_template_text(folder, key);
  const std::string known = deck::list(names_of(templates), "\"", "\"");
  if (!jinja) {
    core::fail(core::ErrorKind::input, {folder.string(), "the model has no chat template",
                                        "a conversation needs markup that says who speaks; models "
                                        "that were not trained on conversations have none",
                                        fmt::format("Set {} to one of {}.", key, known)});
  }
  if (const ChatTemplate* found = recognise(*jinja, templates)) return *found;
  return as_it_is(*jinja, tokenizer, folder, known, key);
}

}  // namespace

std::optional<std::string> model_template_text(const std::filesystem::path& model_folder,
                                               const std::string& key) {
  std::error_code ignored;
  const auto jinja = model_folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja, ignored)) return core::read_text(jinja, limit_bytes);
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto path = model_folder / name;
    if (!std::filesystem::exists(path, ignored)) continue;
    if (auto text = template_in(core::read_json(path, limit_bytes), path.string(), key))
      return text;
  }
  return std::nullopt;
}

std::string template_fingerprint(std::string_view jinja) {
  return core::fingerprint(normalised(jinja));
}

const ChatTemplate* recognise(std::string_view jinja, std::span<const ChatTemplate> templates) {
  const std::string text = normalised(jinja);
  const std::string fingerprint = core::fingerprint(text);
  const auto has = [&](const std::string& mark) {
    return text.find(normalised(mark)) != std::string::npos;
  };
  const ChatTemplate* found = nullptr;
  for (const ChatTemplate& chat : templates) {
    if (std::ranges::find(chat.known, fingerprint) != chat.known.end() ||
        text == normalised(to_jinja(chat)))
      return &chat;
    if (chat.marks.empty() || !std::all_of(chat.marks.begin(), chat.marks.end(), has) ||
        std::any_of(chat.other_marks.begin(), chat.other_marks.end(), has)) {
      continue;
    }
    if (found != nullptr) return nullptr;
    found = &chat;
  }
  return found;
}

ChatTemplate choose_template(const std::string& name, const std::filesystem::path& model_folder,
                             const tokenizer::Tokenizer& tokenizer,
                             std::span<const ChatTemplate> templates, const std::string& key) {
  const auto named = std::find_if(templates.begin(), templates.end(),
                                  [&](const ChatTemplate& chat) { return chat.name == name; });
  const ChatTemplate chosen =
      named != templates.end() ? *named : of_model(model_folder, tokenizer, templates, key);
  const auto written = [&](std::int32_t id) {
    return tokenizer.decode(std::span<const std::int32_t>(&id, 1), false);
  };
  const auto bos = tokenizer.bos_id();
  const bool needs_eos = !chosen.model && chosen.text.find("{eos}") != std::string::npos;
  ChatTemplate chat =
      chosen.with_tokens(bos ? written(*bos) : "", needs_eos ? written(tokenizer.eos_id()) : "");
  if (!tokenizer.id(chat.stop)) {
    core::fail(core::ErrorKind::input,
               {model_folder.string(),
                fmt::format("the tokenizer has no token \"{}\"", core::one_line(chat.stop)),
                fmt::format("the chat template \"{}\" ends answers with it, and spelt in several "
                            "tokens nothing would stop there",
                            chat.name),
                fmt::format("Choose another {}, or a model that has the token.", key)});
  }
  return chat;
}

}  // namespace finetune::data
