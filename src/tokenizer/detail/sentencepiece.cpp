// SPDX-License-Identifier: Apache-2.0
// Reads SentencePiece's model file after its published description
// (github.com/google/sentencepiece, src/sentencepiece_model.proto).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "tokenizer/detail/definition.hpp"
#include "tokenizer/detail/protobuf.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::size_t most_pieces = 2'000'000;
constexpr std::size_t longest_piece = 64 * 1024;
// User-defined symbols are looked for at every character of a text.
constexpr std::size_t longest_fixed = 256;

enum class Type : std::uint64_t { normal = 1, unknown, control, user_defined, unused, byte };
enum class ModelType : std::uint64_t { unigram = 1, bpe, word, character };

struct Piece {
  std::string_view text;
  float score = 0;
  Type type = Type::normal;
};

struct File {
  std::vector<Piece> pieces;
  ModelType model = ModelType::unigram;
  bool byte_fallback = false;
  std::string bos = "<s>";
  std::string eos = "</s>";
  SentencePieceNormalizer normalizer;
};

Piece read_piece(std::string_view message, const std::string& place) {
  ProtobufReader fields(message, place);
  Piece piece;
  while (fields.next()) {
    if (fields.number() == 1) piece.text = fields.bytes();
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) piece.type = static_cast<Type>(fields.integer());
  }
  if (piece.text.empty() || piece.text.size() > longest_piece || core::invalid_utf8(piece.text))
    fields.refuse("a piece that is no text of 1 to 65536 bytes", "pieces are UTF-8");
  if (!std::isfinite(piece.score))
    fields.refuse("a score that is no number", "scores are compared");
  if (piece.type < Type::normal || piece.type > Type::byte)
    fields.refuse(fmt::format("a piece of type {}", static_cast<std::uint64_t>(piece.type)),
                  "types are 1 to 6");
  return piece;
}

void read_trainer(File& file, std::string_view message, const std::string& place) {
  ProtobufReader fields(message, place);
  while (fields.next()) {
    if (fields.number() == 3) file.model = static_cast<ModelType>(fields.integer());
    if (fields.number() == 24 && fields.boolean())
      fields.refuse("treat_whitespace_as_suffix is not supported", "it changes every word");
    if (fields.number() == 35) file.byte_fallback = fields.boolean();
    if (fields.number() == 46) file.bos = fields.bytes();
    if (fields.number() == 47) file.eos = fields.bytes();
  }
  if (file.model != ModelType::unigram && file.model != ModelType::bpe)
    fields.refuse("a model of words or characters is not supported", "BPE and Unigram models are");
}

void read_normalizer(File& file, std::string_view message, const std::string& place) {
  ProtobufReader fields(message, place);
  SentencePieceNormalizer& normalizer = file.normalizer;
  while (fields.next()) {
    if (fields.number() == 2 && !fields.bytes().empty()) {
      normalizer.map = Charsmap::read(fields.bytes());
      if (!normalizer.map)
        fields.refuse("the precompiled map is damaged", "its trie cannot be read");
    }
    if (fields.number() == 3) normalizer.add_dummy_prefix = fields.boolean();
    if (fields.number() == 4) normalizer.remove_extra_whitespaces = fields.boolean();
    if (fields.number() == 5) normalizer.escape_whitespaces = fields.boolean();
  }
}

void refuse_denormalizer(std::string_view message, const std::string& place) {
  ProtobufReader fields(message, place);
  while (fields.next())
    if (fields.number() == 2 && !fields.bytes().empty())
      fields.refuse("a denormalizer is not supported", "it changes text that was decoded");
}

File read_file(std::string_view message, const std::string& place) {
  ProtobufReader fields(message, place);
  File file;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        if (file.pieces.size() == most_pieces)
          fields.refuse("too many pieces", "2,000,000 at most");
        file.pieces.push_back(
            read_piece(fields.bytes(), fmt::format("{}: piece {}", place, file.pieces.size())));
        break;
      case 2:
        read_trainer(file, fields.bytes(), place + ": trainer_spec");
        break;
      case 3:
        read_normalizer(file, fields.bytes(), place + ": normalizer_spec");
        break;
      case 5:
        refuse_denormalizer(fields.bytes(), place + ": denormalizer_spec");
        break;
      default:
        break;  // a test's texts, and fields of later releases
    }
  }
  if (file.pieces.empty())
    fields.refuse("no pieces", "this is neither SentencePiece's model nor a tiktoken file");
  return file;
}

/// What the pieces of a file come to, by their types.
struct Sorted {
  std::unique_ptr<Vocabulary> pieces;
  std::optional<std::int32_t> unknown;
  std::vector<AddedToken> tokens;  // found in the text before it is normalised
  std::vector<AddedToken> fixed;   // user-defined: found in normalised text
  std::vector<bool> usable;        // found by the model
};

Sorted sort_pieces(const File& file, const JsonNode& place) {
  Sorted sorted;
  sorted.pieces = std::make_unique<Vocabulary>(static_cast<std::int32_t>(file.pieces.size()));
  for (std::int32_t id = 0; id < sorted.pieces->size(); ++id) {
    const Piece& piece = file.pieces[static_cast<std::size_t>(id)];
    if (!sorted.pieces->insert(piece.text, id))
      place.refuse(fmt::format("the piece \"{}\" occurs twice", piece.text),
                   "its id would not be defined", "Get the file again.");
    const bool special = piece.type == Type::control || piece.type == Type::unknown;
    if (piece.type == Type::unknown) {
      if (sorted.unknown) place.refuse("two unknown pieces", "there is one", "Get the file again.");
      sorted.unknown = id;
    }
    if (piece.type == Type::unused && file.model == ModelType::bpe)
      place.refuse(fmt::format("the unused piece \"{}\"", piece.text),
                   "a BPE model with such pieces is not supported", "Use a tokenizer.json.");
    if (special)
      sorted.tokens.push_back({id, std::string(piece.text), false, false, false, false, true});
    if (piece.type == Type::user_defined) {
      if (piece.text.size() > longest_fixed)
        place.refuse(fmt::format("a user-defined symbol of {} bytes", piece.text.size()),
                     fmt::format("{} are possible", longest_fixed));
      sorted.fixed.push_back({id, std::string(piece.text), false, false, false, true, false});
    }
    sorted.usable.push_back(piece.type == Type::normal || piece.type == Type::user_defined);
  }
  return sorted;
}

/// The better the score, the lower the rank; equal scores share one, so that the leftmost merges.
std::vector<std::uint32_t> ranks_of(const File& file) {
  std::vector<float> scores;
  for (const Piece& piece : file.pieces)
    scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<std::uint32_t> ranks;
  for (const Piece& piece : file.pieces) {
    const auto at = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    ranks.push_back(piece.type == Type::normal ? static_cast<std::uint32_t>(at - scores.begin())
                                               : Bpe::never);
  }
  return ranks;
}

/// A user-defined symbol's score is above nothing, and more so the longer it is: others are
/// logarithms of probabilities, so it always wins.
std::vector<double> scores_of(const File& file) {
  std::vector<double> scores;
  for (const Piece& piece : file.pieces) {
    const double bonus = 0.1 * static_cast<double>(piece.text.size() - 1);
    const bool fixed = piece.type == Type::user_defined;
    scores.push_back(fixed ? static_cast<float>(bonus) : piece.score);
  }
  return scores;
}

Model make_model(const File& file, Sorted& sorted, const JsonNode& place) {
  if (file.model == ModelType::bpe) {
    Bpe::Options options;
    options.fuse_unknown = true;
    options.byte_fallback = file.byte_fallback;
    options.unknown = sorted.unknown;
    return Bpe::of_ranks(std::move(sorted.pieces), ranks_of(file), options, place);
  }
  Unigram::Options options;
  options.unknown = sorted.unknown;
  options.byte_fallback = file.byte_fallback;
  options.single_precision = true;
  return Unigram(std::move(sorted.pieces), scores_of(file), sorted.usable, options, place);
}

std::shared_ptr<const Vocabulary> fixed_symbols(const std::vector<AddedToken>& tokens,
                                                std::size_t& longest) {
  if (tokens.empty()) return nullptr;
  auto symbols = std::make_shared<Vocabulary>(static_cast<std::int32_t>(tokens.size()));
  std::int32_t i = 0;
  for (const AddedToken& token : tokens) {
    symbols->insert(token.content, i++);
    longest = std::max(longest, token.content.size());
  }
  return symbols;
}

}  // namespace

Definition read_sentencepiece(std::string_view message, const std::string& place,
                              const SideFiles& beside) {
  const core::Json nothing;
  const JsonNode node(nothing, place);
  File file = read_file(message, place);
  Sorted sorted = sort_pieces(file, node);
  file.normalizer.fixed = fixed_symbols(sorted.fixed, file.normalizer.longest_fixed);
  const auto control = [&](const std::string& name) -> std::optional<std::int32_t> {
    const std::int32_t id = sorted.pieces->find(name);
    if (id == Vocabulary::none) return std::nullopt;
    const Type type = file.pieces[static_cast<std::size_t>(id)].type;
    return type == Type::control ? std::optional(id) : std::nullopt;
  };
  const auto bos = control(file.bos);
  const auto eos = control(file.eos);
  // Instructions of Mistral's later files stand between tokens, and no prefix follows those.
  const bool instructs = control("[INST]").has_value();
  auto tokens = std::move(sorted.tokens);
  // In a Unigram model they are pieces that nothing outdoes.
  if (file.model == ModelType::bpe)
    tokens.insert(tokens.end(), sorted.fixed.begin(), sorted.fixed.end());
  beside.join(tokens);
  Model model = make_model(file, sorted, node);
  AddedTokens added = AddedTokens::of(std::move(tokens), pieces_of(model), node);
  const bool drops = file.normalizer.add_dummy_prefix;
  return {Normalizer::of(std::move(file.normalizer)), PreTokenizer(), std::move(model),
          std::move(added), beside.around(bos, eos), Decoder::of_sentencepiece(drops),
          !beside.legacy.value_or(!instructs), bos, eos, beside.settings(),
          // The Hugging Face library, which alone says "legacy", puts one before any space.
          !beside.legacy.has_value()};
}

}  // namespace finetune::tokenizer
