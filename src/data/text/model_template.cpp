// SPDX-License-Identifier: Apache-2.0
#include "data/text/model_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "data/text/detail/chat_writer.hpp"
#include "data/text/end_tokens.hpp"
#include "deck/suggest.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

// Templates with descriptions of tools in them make these files long.
constexpr std::int64_t limit_bytes = 16 << 20;

/// "chat_template" of a file's JSON; nothing if it has none.
std::optional<ModelTemplates> templates_in(const core::Json& config, const std::string& file,
                                           const std::string& key) {
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) return std::nullopt;
  ModelTemplates all;
  all.file = file;
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
std::map<std::string, std::string> named_in(const fs::path& folder) {
  std::map<std::string, std::string> named;
  std::error_code ignored;
  for (fs::directory_iterator i(folder, ignored), end; !ignored && i != end; i.increment(ignored))
    if (i->path().extension() == ".jinja")
      named[i->path().stem().string()] = core::read_text(i->path(), limit_bytes);
  return named;
}

std::vector<std::string> names_of(std::span<const ChatTemplate> templates) {
  std::vector<std::string> names;
  for (const ChatTemplate& chat : templates)
    names.push_back(chat.name);
  return names;
}

constexpr const char* own_name = "the model's own";
constexpr const char* tools_name = "tool_use";

/// The model's own template, if there is one that can be read; else empty.
std::string readable_own(const fs::path& folder) {
  try {
    const std::string own = model_templates(folder).standard.value_or("");
    jinja::Template::parse(own);
    return own;
  } catch (const core::Error&) {
    return "";
  } catch (const jinja::Problem&) {
    return "";
  }
}

/// The special tokens that a tokenizer names beside its begin and end token, as transformers gives
/// them to templates.
OrderedJson other_tokens(const fs::path& folder) {
  OrderedJson tokens = OrderedJson::object();
  const fs::path path = folder / "tokenizer_config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return tokens;
  const core::Json config = core::read_json(path, limit_bytes);
  const auto text_of = [](const core::Json& token) {
    return token.is_object() && token.contains("content") ? token.at("content") : token;
  };
  for (const char* name : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto token = config.find(name); token != config.end() && text_of(*token).is_string())
      tokens[name] = text_of(*token);
  const char* const more = "additional_special_tokens";
  const auto list = config.find(more);
  if (list == config.end() || !list->is_array()) return tokens;
  tokens[more] = OrderedJson::array();
  for (const core::Json& token : *list)
    if (text_of(token).is_string()) tokens[more].push_back(OrderedJson(text_of(token)));
  return tokens;
}

/// `chat` with what writes by it. `known`: names of templates of this program, for messages.
ChatTemplate bound(ChatTemplate chat, bool is_known, const fs::path& folder,
                   const tokenizer::Tokenizer& tokenizer, const std::string& known,
                   const std::string& key) {
  const auto written = [&](std::optional<std::int32_t> id) -> std::string {
    if (!id) return "";
    return tokenizer.decode(std::span<const std::int32_t>(&*id, 1), false);
  };
  const bool needs_eos = is_known && chat.text.find("eos_token") != std::string::npos;
  ChatWriter::Names names{
      .bos = written(tokenizer.bos_id()),
      .eos = written(needs_eos ? tokenizer.eos_id() : tokenizer.find_eos_id()),
      .ends = {.find = [tokenizer](std::string_view text) { return tokenizer.find_special(text); },
               .ids = end_tokens(folder, tokenizer),
               .bos = tokenizer.bos_id()},
      .is_known = is_known,
      .own = is_known ? readable_own(folder) : std::string(),
      .others = is_known ? OrderedJson() : other_tokens(folder)};
  try {
    chat.writer = std::make_shared<const ChatWriter>(chat.text, std::move(names), chat.for_tools);
  } catch (const jinja::Problem& problem) {
    core::fail(
        core::ErrorKind::input,
        {folder.string(),
         fmt::format("the model's chat template cannot be read: {}", problem.what()), "",
         fmt::format("If one of {} writes conversations as the model expects, name it in {}.",
                     known, key)});
  }
  chat.stop = chat.writer->stop();
  chat.ends = end_tokens(folder, tokenizer);
  const auto stop = tokenizer.id(chat.stop);
  if (stop && std::ranges::find(chat.ends, *stop) == chat.ends.end()) chat.ends.push_back(*stop);
  return chat;
}

fs::path file_of(const ModelTemplates& all, const std::string& name) {
  return all.folder.empty() ? all.file : all.folder / (name + ".jinja");
}

/// The one that is called `name`; "": what stands without a name.
ChatTemplate choose(const ModelTemplates& all, const std::string& name, const fs::path& folder,
                    const std::string& known, const std::string& key) {
  if (name.empty() && all.standard) {
    const auto for_tools = all.named.find(tools_name);
    const bool has_one = for_tools != all.named.end();
    return {.name = own_name,
            .text = *all.standard,
            .for_tools = has_one ? for_tools->second : "",
            .file = all.file.string(),
            .tools_file = has_one ? file_of(all, tools_name).string() : ""};
  }
  if (name == "default" && all.standard)
    return {.name = own_name, .text = *all.standard, .file = all.file.string()};
  if (const auto found = all.named.find(name); found != all.named.end()) {
    return {.name = own_name,
            .text = found->second,
            .file = file_of(all, name).string(),
            .own_name = name};
  }
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

}  // namespace

ModelTemplates model_templates(const fs::path& model_folder, const std::string& key) {
  std::error_code ignored;
  const auto jinja = model_folder / "chat_template.jinja";
  if (fs::exists(jinja, ignored)) {
    const auto others = model_folder / "additional_chat_templates";
    return {core::read_text(jinja, limit_bytes), named_in(others), jinja, others};
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto path = model_folder / name;
    if (!fs::exists(path, ignored)) continue;
    if (auto all = templates_in(core::read_json(path, limit_bytes), path.string(), key))
      return *std::move(all);
  }
  return {};
}

ChatTemplate choose_template(const std::string& name, const fs::path& model_folder,
                             const tokenizer::Tokenizer& tokenizer,
                             std::span<const ChatTemplate> templates, const std::string& key,
                             const fs::path& template_folder) {
  const fs::path& from = template_folder.empty() ? model_folder : template_folder;
  const std::string known = deck::list(names_of(templates), "\"", "\"");
  const auto named = std::ranges::find(templates, name, &ChatTemplate::name);
  const bool is_known = named != templates.end();
  constexpr std::string_view of_model_prefix = "model:";
  const std::string own =
      name.starts_with(of_model_prefix) ? name.substr(of_model_prefix.size()) : std::string();
  const ChatTemplate chat =
      bound(is_known ? *named : choose(model_templates(from, key), own, from, known, key), is_known,
            model_folder, tokenizer, known, key);
  if (!tokenizer.id(chat.stop) && (is_known || !chat.stop.empty())) {
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
