// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/json.hpp"
#include "tokenizer/detail/definition.hpp"

namespace finetune::tokenizer {
namespace {

// Chat templates with tool descriptions make these files long.
constexpr std::int64_t config_limit_bytes = 16 << 20;

/// Names of "added_tokens_decoder" are ids.
std::int32_t id_of(const JsonNode& node, const std::string& key) {
  std::int64_t id = 0;
  for (const char c : key) {
    if (c < '0' || c > '9' || key.size() > 9) node.refuse("not an id", "its members are ids");
    id = 10 * id + (c - '0');
  }
  return static_cast<std::int32_t>(id);
}

std::optional<bool> choice(const JsonNode& root, const char* key) {
  return root.find(key) ? std::optional(root.boolean(key)) : std::nullopt;
}

void read_config(SideFiles& beside, const std::filesystem::path& path) {
  const core::Json json = core::read_json(path, config_limit_bytes);
  const JsonNode root(json, path.string());
  beside.add_bos = choice(root, "add_bos_token");
  beside.add_eos = choice(root, "add_eos_token");
  beside.legacy = choice(root, "legacy");
  const auto tokens = root.find("added_tokens_decoder");
  if (!tokens) return;
  if (!tokens->value().is_object()) tokens->refuse("not a JSON object", "its members are ids");
  for (const auto& [key, value] : tokens->value().items()) {
    const JsonNode node(value, tokens->place() + "." + key);
    beside.tokens.push_back({id_of(node, key), node.text("content"),
                             node.boolean("single_word", false), node.boolean("lstrip", false),
                             node.boolean("rstrip", false), node.boolean("normalized", false),
                             node.boolean("special", false)});
  }
}

void read_added(SideFiles& beside, const std::filesystem::path& path) {
  const core::Json json = core::read_json(path, config_limit_bytes);
  const JsonNode root(json, path.string());
  if (!json.is_object()) root.refuse("not a JSON object", "it maps tokens to ids");
  for (const auto& [name, value] : json.items()) {
    const std::int32_t id = JsonNode(value, root.place() + ": " + name).as_id();
    const bool known = std::any_of(beside.tokens.begin(), beside.tokens.end(),
                                   [&](const AddedToken& token) { return token.id == id; });
    if (!known) beside.tokens.push_back({id, name, false, false, false, false, true});
  }
}

}  // namespace

SideFiles SideFiles::read(const std::filesystem::path& model_folder) {
  SideFiles beside;
  const auto config = model_folder / "tokenizer_config.json";
  if (std::filesystem::exists(config)) read_config(beside, config);
  const auto added = model_folder / "added_tokens.json";
  if (std::filesystem::exists(added)) read_added(beside, added);
  return beside;
}

void SideFiles::join(std::vector<AddedToken>& others) const {
  std::vector<std::int32_t> ids;
  for (const AddedToken& token : tokens)
    ids.push_back(token.id);
  std::sort(ids.begin(), ids.end());
  std::erase_if(others, [&](const AddedToken& token) {
    return std::binary_search(ids.begin(), ids.end(), token.id);
  });
  others.insert(others.end(), tokens.begin(), tokens.end());
}

std::string SideFiles::settings() const {
  const auto shown = [](std::optional<bool> choice) { return choice ? int{*choice} : -1; };
  std::string text = fmt::format(" {} {} {}", shown(add_bos), shown(add_eos), shown(legacy));
  // Raised when the same choice begins to give other ids.
  if (legacy) text += " 2";
  for (const AddedToken& token : tokens) {
    text +=
        fmt::format(" {} {} {} {:d}{:d}{:d}{:d}{:d}", token.id, token.content.size(), token.content,
                    token.single_word, token.lstrip, token.rstrip, token.normalized, token.special);
  }
  return text;
}

PostProcessor SideFiles::around(std::optional<std::int32_t> bos,
                                std::optional<std::int32_t> eos) const {
  PostProcessor processor;
  if (bos && add_bos.value_or(true)) processor.before.push_back(*bos);
  if (eos && add_eos.value_or(false)) processor.after.push_back(*eos);
  return processor;
}

}  // namespace finetune::tokenizer
