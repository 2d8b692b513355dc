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
#include "data/text/end_tokens.hpp"
#include "data/text/jinja.hpp"
#include "deck/suggest.hpp"

namespace finetune::data {
namespace {

// Templates with descriptions of tools in them make these files long.
constexpr std::int64_t limit_bytes = 16 << 20;

/// "chat_template" of a file's JSON; nothing if it has none.
std::optional<ModelTemplates> templates_in(const core::Json& config, const std::string& file,
                                           const std::string& key) {
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) return std::nullopt;
  ModelTemplates all;
  if (found->is_string()) all.standard = found->get<std::string>();
  const auto is_text = [](const core::Json& each, const char* field) {
    return each.is_object() && each.contains(field) && each.at(field).is_string();
  };
  for (const core::Json& each : found->is_array() ? *found : core::Json::array())
    if (is_text(each, "name") && is_text(each, "template"))
      all.named[each.at("name").get<std::string>()] = each.at("template").get<std::string>();
  if (auto standard = all.named.extract("default")) all.standard = std::move(standard.mapped());
  if (all.standard || !all.named.empty()) return all;
  core::fail(
      core::ErrorKind::input,
      {file, "\"chat_template\" is neither a text nor a list of named ones",
       "it says how a conversation is written for the model", "Name a template in " + key + "."});
}

/// Those of a folder, which are named by their files.
std::map<std::string, std::string> named_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> named;
  std::error_code ignored;
  for (std::filesystem::directory_iterator i(folder, ignored), end; !ignored && i != end;
       i.increment(ignored))
    if (i->path().extension() == ".jinja")
      named[i->path().stem().string()] = core::read_text(i->path(), limit_bytes);
  return named;
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

/// What a model's own template is made from.
struct Published {
  std::filesystem::path folder;
  std::string text;
  std::string for_tools;  ///< empty: the same
};

/// The model's own, as it is: none of the known ones stands for it.
ChatTemplate as_it_is(const Published& published, const tokenizer::Tokenizer& tokenizer,
                      const std::string& known, const std::string& key) {
  const auto written = [&](std::optional<std::int32_t> id) -> std::string {
    if (!id) return "";
    return tokenizer.decode(std::span<const std::int32_t>(&*id, 1), false);
  };
  ChatTemplate chat;
  chat.name = "the model's own";
  chat.text = published.text + published.for_tools;
  try {
    ModelChat::Names names{
        .bos = written(tokenizer.bos_id()),
        .eos = written(tokenizer.find_eos_id()),
        .ends = {
            .find = [tokenizer](std::string_view text) { return tokenizer.find_special(text); },
            .ids = end_tokens(published.folder, tokenizer)}};
    chat.model =
        std::make_shared<const ModelChat>(published.text, std::move(names), published.for_tools);
  } catch (const jinja::Problem& problem) {
    core::fail(
        core::ErrorKind::input,
        {published.folder.string(),
         fmt::format("the model's chat template cannot be read: {}", problem.what()), "",
         fmt::format("If one of {} writes conversations as the model expects, name it in {}.",
                     known, key)});
  }
  chat.stop = chat.model->stop();
  return chat;
}

/// The one that is called `name`; "": what stands without a name.
Published choose(const ModelTemplates& all, const std::string& name,
                 const std::filesystem::path& folder, const std::string& known,
                 const std::string& key) {
  if (name.empty() && all.standard) {
    const auto for_tools = all.named.find("tool_use");
    return {folder, *all.standard, for_tools == all.named.end() ? "" : for_tools->second};
  }
  if (name == "default" && all.standard) return {folder, *all.standard, ""};
  if (const auto found = all.named.find(name); found != all.named.end())
    return {folder, found->second, ""};
  if (!all.standard && all.named.empty()) {
    core::fail(core::ErrorKind::input, {folder.string(), "the model has no chat template",
                                        "a conversation needs markup that says who speaks; models "
                                        "that were not trained on conversations have none",
                                        fmt::format("Set {} to one of {}.", key, known)});
  }
  std::vector<std::string> names;
  if (all.standard) names.emplace_back("default");
  for (const auto& [each, text] : all.named)
    names.push_back(each);
  core::fail(core::ErrorKind::input,
             {folder.string(),
              name.empty() ? "none of the model's chat templates is called \"default\""
                           : fmt::format("the model has no chat template \"{}\"", name),
              fmt::format("it has {}", deck::list(names, "\"", "\"")),
              key == "data.template" ? "Name one of these in data.model_template."
                                     : fmt::format("Write {} model:NAME.", key)});
}

ChatTemplate of_model(const std::string& name, const std::filesystem::path& folder,
                      const tokenizer::Tokenizer& tokenizer,
                      std::span<const ChatTemplate> templates, const std::string& key) {
  const std::string known = deck::list(names_of(templates), "\"", "\"");
  const Published published = choose(model_templates(folder, key), name, folder, known, key);
  // A known template writes tools in its own way.
  if (published.for_tools.empty())
    if (const ChatTemplate* found = recognise(published.text, templates)) return *found;
  return as_it_is(published, tokenizer, known, key);
}

}  // namespace

ModelTemplates model_templates(const std::filesystem::path& model_folder, const std::string& key) {
  std::error_code ignored;
  const auto jinja = model_folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja, ignored))
    return {core::read_text(jinja, limit_bytes),
            named_in(model_folder / "additional_chat_templates")};
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto path = model_folder / name;
    if (!std::filesystem::exists(path, ignored)) continue;
    if (auto all = templates_in(core::read_json(path, limit_bytes), path.string(), key))
      return *std::move(all);
  }
  return {};
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
  constexpr std::string_view of_model_prefix = "model:";
  const ChatTemplate chosen =
      named != templates.end()
          ? *named
          : of_model(name.starts_with(of_model_prefix) ? name.substr(of_model_prefix.size()) : "",
                     model_folder, tokenizer, templates, key);
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
