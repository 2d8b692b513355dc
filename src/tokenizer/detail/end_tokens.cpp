// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/end_tokens.hpp"

#include <fmt/format.h>

#include "core/python_json.hpp"

#include "tokenizer/detail/json_node.hpp"

namespace finetune::tokenizer {
namespace {

// Chat templates with tool descriptions make these files long.
constexpr std::int64_t generation_config_limit_bytes = 16 << 20;

using IdOf = std::function<std::optional<std::int32_t>(std::string_view)>;

/// A token is written as its text, or as an object with the text in "content".
std::int32_t named_id(const JsonNode& node, const std::string& file, const IdOf& id_of) {
  const std::string name = node.value().is_object() ? node.text("content") : node.as_text();
  if (const auto id = id_of(name)) return *id;
  node.refuse(fmt::format("{} has no token \"{}\"", file, name), "it needs an id",
              "Take both files from the same model.");
}

std::int32_t numbered_id(const JsonNode& node, const std::string& file, std::int32_t vocab_size) {
  const JsonNode first =
      node.value().is_array() && !node.value().empty() ? node.as_list()[0] : node;
  const std::int32_t id = first.as_id();
  if (id < vocab_size) return id;
  first.refuse(fmt::format("id {}", id), fmt::format("{} ends at {}", file, vocab_size - 1),
               "Take both files from the same model.");
}

std::optional<core::Json> read_beside(const std::filesystem::path& model_folder, const char* name) {
  const auto path = model_folder / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return core::read_python_json(path, generation_config_limit_bytes);
}

void add_numbers(EndTokens& tokens, const std::filesystem::path& model_folder, bool bos_said,
                 const std::string& name_of_file, std::int32_t vocab_size) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    if (tokens.eos && (tokens.bos || bos_said)) break;
    const auto config = read_beside(model_folder, name);
    if (!config) continue;
    const JsonNode root(*config, (model_folder / name).string());
    const auto eos = root.find("eos_token_id");
    if (eos && !tokens.eos) tokens.eos = numbered_id(*eos, name_of_file, vocab_size);
    const auto bos = root.find("bos_token_id");
    if (bos && !tokens.bos && !bos_said) tokens.bos = numbered_id(*bos, name_of_file, vocab_size);
  }
}

}  // namespace

EndTokens EndTokens::read_numbers(const std::filesystem::path& model_folder,
                                  std::int32_t vocab_size) {
  EndTokens tokens;
  add_numbers(tokens, model_folder, false, "the vocabulary", vocab_size);
  return tokens;
}

EndTokens EndTokens::read(const std::filesystem::path& file, std::int32_t vocab_size,
                          const EndTokens& otherwise, const IdOf& id_of) {
  EndTokens tokens;
  const std::filesystem::path model_folder = file.parent_path();
  const std::string name_of_file = file.filename().string();
  bool bos_said = false;
  if (const auto config = read_beside(model_folder, "tokenizer_config.json")) {
    const JsonNode root(*config, (model_folder / "tokenizer_config.json").string());
    if (const auto eos = root.find("eos_token")) tokens.eos = named_id(*eos, name_of_file, id_of);
    if (const auto bos = root.find("bos_token")) tokens.bos = named_id(*bos, name_of_file, id_of);
    bos_said = config->contains("bos_token");
  }
  add_numbers(tokens, model_folder, bos_said, name_of_file, vocab_size);
  if (!tokens.eos) tokens.eos = otherwise.eos;
  if (!tokens.bos && !bos_said) tokens.bos = otherwise.bos;
  return tokens;
}

}  // namespace finetune::tokenizer
