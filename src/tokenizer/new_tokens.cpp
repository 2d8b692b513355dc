// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/new_tokens.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tokenizer {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t largest_file_bytes = std::int64_t{256} << 20;
constexpr const char* file_name = "tokenizer.json";

struct NewToken {
  std::int64_t id;
  std::string content;
  bool is_special;
};

std::vector<NewToken> numbered(const NewTokens& tokens, std::int64_t first) {
  std::vector<NewToken> all;
  for (const std::string& content : tokens.plain)
    all.push_back({first++, content, false});
  for (const std::string& content : tokens.special)
    all.push_back({first++, content, true});
  return all;
}

/// What transformers writes of an added token, but its id.
OrderedJson described(const NewToken& token) {
  return {{"content", token.content},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", !token.is_special},
          {"special", token.is_special}};
}

/// A file of the folder that keeps its order; null if it is not there, or is no object.
OrderedJson read(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  if (!fs::exists(folder / name, ignored)) return {};
  OrderedJson json = OrderedJson::parse(core::read_text(folder / name, largest_file_bytes), nullptr,
                                        /*allow_exceptions=*/false);
  return json.is_object() ? json : OrderedJson();
}

std::string tokenizer_json(const fs::path& folder, const std::vector<NewToken>& tokens) {
  OrderedJson json = read(folder, file_name);
  OrderedJson& added = json["added_tokens"];
  if (!added.is_array()) added = OrderedJson::array();
  for (const NewToken& token : tokens) {
    OrderedJson entry = {{"id", token.id}};
    entry.update(described(token));
    added.push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

/// Appends special tokens to a list of names that is there, or a map of them that is.
void append_special(OrderedJson& json, const std::vector<NewToken>& tokens) {
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    if (!json.contains(key) || !json[key].is_array()) continue;
    for (const NewToken& token : tokens)
      if (token.is_special) json[key].push_back(token.content);
    return;
  }
  for (const NewToken& token : tokens)
    if (token.is_special) json["additional_special_tokens"].push_back(token.content);
}

void update_config(const std::vector<NewToken>& tokens, OrderedJson& json) {
  if (json.contains("added_tokens_decoder") && json["added_tokens_decoder"].is_object())
    for (const NewToken& token : tokens)
      json["added_tokens_decoder"][std::to_string(token.id)] = described(token);
  append_special(json, tokens);
}

}  // namespace

std::int64_t first_new_id(const fs::path& model_folder, const NewTokens& tokens) {
  const Tokenizer tokenizer = Tokenizer::load(model_folder);
  if (tokenizer.file().filename() != file_name)
    core::fail(core::ErrorKind::input,
               {tokenizer.file().string(), "new tokens cannot be written into it",
                "model.add_tokens needs a tokenizer.json",
                "Save the tokenizer with transformers' save_pretrained first."});
  for (const NewToken& token : numbered(tokens, 0)) {
    const auto id = tokenizer.id(token.content);
    if (!id) continue;
    core::fail(core::ErrorKind::input,
               {tokenizer.file().string(),
                fmt::format("has the token \"{}\" already", core::one_line(token.content)),
                fmt::format("its id is {}, and its row in the embedding is there", *id),
                "Leave it out of model.add_tokens."});
  }
  return tokenizer.vocab_size();
}

std::map<std::string, std::string> texts_with(const fs::path& model_folder,
                                              const NewTokens& tokens) {
  const auto all = numbered(tokens, first_new_id(model_folder, tokens));
  std::map<std::string, std::string> texts;
  texts[file_name] = tokenizer_json(model_folder, all);
  if (OrderedJson json = read(model_folder, "tokenizer_config.json"); !json.is_null()) {
    update_config(all, json);
    texts["tokenizer_config.json"] = json.dump(2) + "\n";
  }
  if (OrderedJson json = read(model_folder, "special_tokens_map.json"); !json.is_null()) {
    append_special(json, all);
    texts["special_tokens_map.json"] = json.dump(2) + "\n";
  }
  if (OrderedJson json = read(model_folder, "added_tokens.json"); !json.is_null()) {
    for (const NewToken& token : all)
      json[token.content] = token.id;
    texts["added_tokens.json"] = json.dump(2) + "\n";
  }
  return texts;
}

}  // namespace finetune::tokenizer
