#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a file of any kind says about its tokenizer.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/detail/added_tokens.hpp"
#include "tokenizer/detail/bpe.hpp"
#include "tokenizer/detail/decoder.hpp"
#include "tokenizer/detail/normalizer.hpp"
#include "tokenizer/detail/post_processor.hpp"
#include "tokenizer/detail/pre_tokenizer.hpp"
#include "tokenizer/detail/unigram.hpp"

namespace finetune::tokenizer {

using Model = std::variant<Bpe, Unigram>;

inline const Vocabulary& pieces_of(const Model& model) {
  return std::visit([](const auto& m) -> const Vocabulary& { return m.pieces(); }, model);
}

struct Definition {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Model model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  /// Whether the prefix goes before the first word of a text only, and not behind special tokens.
  bool prefix_once = false;
  /// Where no other file names them.
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  /// What decides ids in addition to the file: for the fingerprint.
  std::string settings;
  /// A space that a template wrote where the prefix would go is the prefix; see Encode::no_ends.
  bool own_space_is_prefix = false;
};

/// What tokenizer_config.json and added_tokens.json say where the tokenizer's file cannot.
struct SideFiles {
  std::vector<AddedToken> tokens;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> legacy;

  static SideFiles read(const std::filesystem::path& model_folder);
  /// Adds its tokens to those of the file. One of the same id goes before, with its name.
  void join(std::vector<AddedToken>& tokens) const;
  /// Everything of it that decides ids, as one text.
  std::string settings() const;
  PostProcessor around(std::optional<std::int32_t> bos, std::optional<std::int32_t> eos) const;
};

/// tokenizer.json of the Hugging Face library. Throws: ErrorKind::input if the file is damaged or
/// asks for something that is not supported; so do the others.
Definition read_tokenizer_json(const std::string& text, const std::string& place);

/// Lines of a piece in base64 and its rank: tokenizer.model of Llama 3 and Llama 4, told apart by
/// their numbers of pieces, and qwen.tiktoken.
enum class TiktokenKind { llama, qwen };
Definition read_tiktoken(std::string_view text, const std::string& place, TiktokenKind kind,
                         const SideFiles& beside);

/// Mistral's tekken.json.
Definition read_tekken(const std::string& text, const std::string& place, const SideFiles& beside);

/// SentencePiece's tokenizer.model, a protobuf message.
Definition read_sentencepiece(std::string_view file, const std::string& place,
                              const SideFiles& beside);

}  // namespace finetune::tokenizer
