// SPDX-License-Identifier: Apache-2.0
// Files of OpenAI's tiktoken as Llama 3, Llama 4 and Qwen 1 are published with. The file has the
// ordinary pieces only; the pattern and the special tokens belong to the model.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "tokenizer/detail/base64.hpp"
#include "tokenizer/detail/definition.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::size_t most_tiktoken_pieces = 2'000'000;
constexpr std::int32_t llama4_pieces = 200'000;

[[noreturn]] void refuse(const std::string& place, std::size_t line, const std::string& problem,
                         const std::string& why) {
  core::fail(core::ErrorKind::input, {fmt::format("{}:{}", core::one_line(place), line), problem,
                                      why, "Get the file again."});
}

struct Row {
  std::string piece;
  std::int32_t id;
};

std::optional<Row> read_row(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto piece = from_base64(line.substr(0, space));
  std::int32_t id = 0;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, id);
  if (!piece || piece->empty() || error != std::errc() || stop != end || id < 0)
    return std::nullopt;
  return Row{std::move(*piece), id};
}

std::unique_ptr<Vocabulary> read_pieces(std::string_view text, const std::string& place) {
  std::vector<Row> rows;
  std::size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto row = read_row(line);
    if (!row)
      refuse(place, line_number, "not a piece in base64 and its rank", "every line has the two");
    if (rows.size() == most_tiktoken_pieces)
      refuse(place, line_number, "too many pieces",
             fmt::format("{} are possible", most_tiktoken_pieces));
    rows.push_back(std::move(*row));
  }
  auto pieces = std::make_unique<Vocabulary>(static_cast<std::int32_t>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // As many different ids below their number as pieces: so there are no gaps.
    if (rows[i].id >= pieces->size() || !pieces->insert(rows[i].piece, rows[i].id)) {
      refuse(place, i + 1, fmt::format("rank {} is too large or there twice", rows[i].id),
             "pieces and ranks belong to each other, from 0 on without gaps");
    }
  }
  return pieces;
}

AddedToken special(std::int32_t id, std::string name) {
  return {id, std::move(name), false, false, false, false, true};
}

std::vector<AddedToken> llama3_tokens(std::int32_t first) {
  constexpr std::int32_t count = 256;
  // Where tokens of later releases (3.1) took the place of reserved ones.
  constexpr std::array<std::string_view, 11> named{"<|begin_of_text|>",
                                                   "<|end_of_text|>",
                                                   "",
                                                   "",
                                                   "<|finetune_right_pad_id|>",
                                                   "",
                                                   "<|start_header_id|>",
                                                   "<|end_header_id|>",
                                                   "<|eom_id|>",
                                                   "<|eot_id|>",
                                                   "<|python_tag|>"};
  std::vector<AddedToken> tokens;
  int reserved = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool has_name = at < named.size() && !named[at].empty();
    tokens.push_back(
        special(first + i, has_name ? std::string(named[at])
                                    : fmt::format("<|reserved_special_token_{}|>", reserved++)));
  }
  return tokens;
}

/// Source: github.com/meta-llama/llama-models, models/llama4/tokenizer.py.
constexpr std::string_view llama4_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// As in the same file: names, and between them runs of reserved ones.
std::vector<AddedToken> llama4_tokens(std::int32_t first) {
  constexpr std::size_t count = 2048;
  std::vector<std::string> names = {
      "<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
      "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
  const auto reserve = [&](const char* kind, int from, int to) {
    for (int i = from; i < to; ++i)
      names.push_back(fmt::format("<|{}reserved_special_token_{}|>", kind, i));
  };
  const auto add = [&](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  reserve("text_post_train_", 0, 6);
  add({"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  reserve("text_post_train_", 8, 69);
  add({"<|image_start|>", "<|image_end|>"});
  reserve("vision_", 0, 2);
  add({"<|tile_x_separator|>", "<|tile_y_separator|>"});
  reserve("vision_", 2, 6);
  add({"<|image|>"});
  reserve("vision_", 6, 7);
  add({"<|patch|>"});
  reserve("vision_", 7, 1048);
  reserve("reasoning_", 0, 8);
  add({"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  reserve("", 0, static_cast<int>(count - names.size()));
  std::vector<AddedToken> tokens;
  for (std::size_t i = 0; i < names.size(); ++i)
    tokens.push_back(special(first + static_cast<std::int32_t>(i), std::move(names[i])));
  return tokens;
}

std::vector<AddedToken> qwen_tokens(std::int32_t first) {
  constexpr int extras = 205;
  std::vector<AddedToken> tokens{special(first, "<|endoftext|>"),
                                 special(first + 1, "<|im_start|>"),
                                 special(first + 2, "<|im_end|>")};
  for (int i = 0; i < extras; ++i)
    tokens.push_back(special(first + 3 + i, fmt::format("<|extra_{}|>", i)));
  return tokens;
}

}  // namespace

Definition read_tiktoken(std::string_view text, const std::string& place, TiktokenKind kind,
                         const SideFiles& beside) {
  auto pieces = read_pieces(text, place);
  const core::Json nothing;
  const JsonNode file(nothing, place);
  const std::int32_t first = pieces->size();
  const bool llama = kind == TiktokenKind::llama;
  const bool llama4 = llama && first == llama4_pieces;
  if (llama && first > llama4_pieces) {
    file.refuse(fmt::format("{} pieces", core::with_commas(first)),
                "this is neither Llama 3's nor Llama 4's file, so pattern and special tokens are "
                "not known",
                "Use the tokenizer.json of the model.");
  }
  std::vector<std::uint32_t> ranks;
  for (std::int32_t id = 0; id < first; ++id)
    ranks.push_back(static_cast<std::uint32_t>(id));
  Bpe::Options options;
  options.byte_level = options.whole_words = true;
  Bpe bpe = Bpe::of_ranks(std::move(pieces), ranks, options, file);
  auto tokens = llama4 ? llama4_tokens(first) : llama ? llama3_tokens(first) : qwen_tokens(first);
  beside.join(tokens);
  AddedTokens added = AddedTokens::of(std::move(tokens), bpe.pieces(), file);
  const auto pattern = llama4  ? llama4_pattern
                       : llama ? KnownSplit::llama3_pattern
                               : KnownSplit::qwen2_pattern;
  const std::optional<std::int32_t> bos = llama ? std::optional(first) : std::nullopt;
  const std::int32_t eos = llama ? first + 1 : first;
  return {llama ? Normalizer() : Normalizer::composed(),
          PreTokenizer::of(std::string(pattern), place),
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
