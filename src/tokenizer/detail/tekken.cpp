// SPDX-License-Identifier: Apache-2.0
// Mistral's tekken.json: tiktoken's pieces with their pattern and special tokens, which come first.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/json.hpp"
#include "tokenizer/detail/base64.hpp"
#include "tokenizer/detail/definition.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::int64_t most_tekken_values = 12'000'000;
constexpr std::int32_t most_tekken_tokens = 2'000'000;

// Of files that do not list them (github.com/mistralai/mistral-common,
// tokens/tokenizers/tekken.py).
constexpr std::array<const char*, 20> first_special{"<unk>",
                                                    "<s>",
                                                    "</s>",
                                                    "[INST]",
                                                    "[/INST]",
                                                    "[AVAILABLE_TOOLS]",
                                                    "[/AVAILABLE_TOOLS]",
                                                    "[TOOL_RESULTS]",
                                                    "[/TOOL_RESULTS]",
                                                    "[TOOL_CALLS]",
                                                    "[IMG]",
                                                    "<pad>",
                                                    "[IMG_BREAK]",
                                                    "[IMG_END]",
                                                    "[PREFIX]",
                                                    "[MIDDLE]",
                                                    "[SUFFIX]",
                                                    "[SYSTEM_PROMPT]",
                                                    "[/SYSTEM_PROMPT]",
                                                    "[TOOL_CONTENT]"};

struct Sizes {
  std::int32_t all;
  std::int32_t special;
};

Sizes read_sizes(const JsonNode& config) {
  const Sizes sizes{config.id("default_vocab_size"), config.id("default_num_special_tokens")};
  if (sizes.all > most_tekken_tokens || sizes.special >= sizes.all) {
    config.refuse(fmt::format("{} tokens, {} of them special", sizes.all, sizes.special),
                  fmt::format("there are ordinary ones, and at most {} in all", most_tekken_tokens),
                  "The file is damaged: get it again.");
  }
  return sizes;
}

std::vector<AddedToken> special_tokens(const JsonNode& root, std::int32_t count) {
  std::vector<std::string> names(static_cast<std::size_t>(count));
  const auto put = [&](const JsonNode& node, std::int32_t rank, const std::string& name) {
    if (rank >= count || !names[static_cast<std::size_t>(rank)].empty()) {
      node.refuse(fmt::format("special token {} is there twice or too large", rank),
                  fmt::format("there are {}", count), "The file is damaged: get it again.");
    }
    names[static_cast<std::size_t>(rank)] = name;
  };
  if (root.find("special_tokens")) {
    for (const JsonNode& node : root.list("special_tokens"))
      put(node, node.id("rank"), node.text("token_str"));
  } else {
    std::int32_t rank = 0;
    for (const char* name : first_special)
      put(root, rank++, name);
  }
  std::vector<AddedToken> tokens;
  for (std::int32_t id = 0; id < count; ++id) {
    std::string& name = names[static_cast<std::size_t>(id)];
    if (name.empty()) name = fmt::format("<SPECIAL_{}>", id);
    tokens.push_back({id, std::move(name), false, false, false, false, true});
  }
  return tokens;
}

std::unique_ptr<Vocabulary> read_pieces(const JsonNode& root, const Sizes& sizes) {
  const std::int32_t count = sizes.all - sizes.special;
  const auto rows = root.list("vocab");
  if (rows.size() < static_cast<std::size_t>(count)) {
    root.refuse(fmt::format("{} pieces in \"vocab\"", rows.size()),
                fmt::format("default_vocab_size needs {}", count),
                "The file is damaged: get it again.");
  }
  auto pieces = std::make_unique<Vocabulary>(sizes.all);
  for (const JsonNode& row : rows) {
    const std::int32_t rank = row.id("rank");
    if (rank >= count) continue;  // the published vocabulary is longer than what models use
    const auto piece = from_base64(row.text("token_bytes"));
    if (!piece || piece->empty() || !pieces->insert(*piece, rank + sizes.special)) {
      row.refuse("this is not one more piece",
                 "\"token_bytes\" is base64, and bytes and rank occur once",
                 "The file is damaged: get it again.");
    }
  }
  return pieces;
}

}  // namespace

Definition read_tekken(const std::string& text, const std::string& place, const SideFiles& beside) {
  const core::Json json = core::parse_json(text, place, 1, most_tekken_values);
  const JsonNode root(json, place);
  const JsonNode config = root.at("config");
  const Sizes sizes = read_sizes(config);
  PreTokenizer pre_tokenizer = PreTokenizer::of(config.text("pattern"), config.place());
  auto pieces = read_pieces(root, sizes);
  std::vector<std::uint32_t> ranks(static_cast<std::size_t>(sizes.all), Bpe::never);
  for (std::int32_t id = sizes.special; id < sizes.all; ++id)
    ranks[static_cast<std::size_t>(id)] = static_cast<std::uint32_t>(id);
  Bpe::Options options;
  options.byte_level = options.whole_words = true;
  Bpe bpe = Bpe::of_ranks(std::move(pieces), ranks, options, root);
  auto tokens = special_tokens(root, sizes.special);
  beside.join(tokens);
  AddedTokens added = AddedTokens::of(std::move(tokens), bpe.pieces(), root);
  const auto id = [&](const char* name) -> std::optional<std::int32_t> {
    const AddedToken* token = added.find(name);
    return token != nullptr ? std::optional(token->id) : std::nullopt;
  };
  const auto bos = id("<s>");
  const auto eos = id("</s>");
  return {Normalizer(),
          std::move(pre_tokenizer),
          std::move(bpe),
          std::move(added),
          beside.around(bos, eos),
          Decoder::of_bytes(),
          false,
          bos,
          eos,
          beside.settings()};
}

}  // namespace finetune::tokenizer
