#pragma once
// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as the file says that the model was published with.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

/// How `Tokenizer::encode` treats the ends of a text and the names of special tokens in it.
/// Combine with `|`: `Encode::continuation | Encode::plain`.
enum class Encode : unsigned {
  /// A text of its own: the post-processor adds its tokens (for example the begin token), and a
  /// prefix such as U+2581 goes before the first word.
  document = 0,
  /// A text that continues another one: nothing is added at its start or end, so that
  /// encode(prompt, document) followed by encode(answer, continuation) is what a model sees when it
  /// answers the prompt.
  continuation = 1,
  /// The name of a special token inside the text is ordinary text. Without it the name becomes the
  /// token's id, as in the Hugging Face libraries; use it for text of unknown origin.
  plain = 2,
  /// The start of a document, with its prefix, but without the tokens of the post-processor: for
  /// text whose template has written them.
  /// A space that such a text has where SentencePiece puts its prefix is that prefix: with
  /// SentencePiece's own files no second one is put, as Mistral's library has it, unless
  /// tokenizer_config.json says "legacy", which is the Hugging Face library's.
  no_ends = 4,
};

/// A stretch of a text that is encoded in one go.
struct TextPart {
  std::string_view text;
  /// Of unknown origin: names of special tokens in it are ordinary text.
  bool plain = false;
  /// What stands before it is tokens already, as where a model begins to answer: no token holds
  /// parts of both. Prefixes are those of the one text all the same.
  bool starts_anew = false;
  /// Encoded::ends says where its tokens end.
  bool is_counted = false;
};

/// Ids of a text in parts.
struct Encoded {
  std::vector<std::int32_t> ids;
  std::size_t num_before = 0;     ///< of them the post-processor's, in front of the text
  std::size_t num_after = 0;      ///< and behind it
  std::vector<std::size_t> ends;  ///< for each counted part: the ids that begin before its end
};

/// Where the name of an added token stands in a text, in bytes.
struct SpecialPlace {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
  bool special;  ///< left out of decoded text on request; else a word of the vocabulary

  bool operator==(const SpecialPlace&) const = default;
};

constexpr Encode operator|(Encode a, Encode b) {
  return static_cast<Encode>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/// A tokenizer read from a model folder: `tokenizer.json` of the Hugging Face library (byte-level
/// BPE as in GPT-2, Llama 3 and Qwen, SentencePiece style as in Llama 2 and Mistral, Unigram),
/// Mistral's `tekken.json`, tiktoken's `*.tiktoken` (Qwen 1) and `tokenizer.model` (Llama 3 and 4),
/// or SentencePiece's `tokenizer.model`. Ids equal those of the library that the file belongs to.
/// Cheap to copy; every member function may be called from several threads at once.
///
/// Names of special tokens inside a text become the tokens unless `Encode::plain` or a plain part
/// says otherwise, whatever the file: data of unknown origin is to be encoded as plain text, so
/// that a sample cannot end a turn or begin a system prompt by spelling it.
class Tokenizer {
 public:
  /// Reads the first that is there of: tokenizer.json, tekken.json, *.tiktoken, tokenizer.model,
  /// tokenizer.model.v*. The end and begin tokens come from `tokenizer_config.json`, else
  /// `config.json`, else `generation_config.json`, else the file itself; the former, and
  /// `added_tokens.json`, may also name more tokens where the file is not tokenizer.json.
  /// Throws: ErrorKind::input if the file is damaged or asks for something not supported here; what
  /// is not supported is named and never ignored.
  static Tokenizer load(const std::filesystem::path& model_folder);

  /// Ids without a text, of a model whose data are ids and whose tokenizer is not there: 0 to
  /// `vocab_size` - 1, decoded as numbers. End and begin tokens come from `config.json`, else
  /// `generation_config.json`. Throws: ErrorKind::input if these files are damaged.
  static Tokenizer of_ids(const std::filesystem::path& model_folder, std::int64_t vocab_size);

  /// Whether there are ids alone.
  bool has_ids_only() const;

  /// Token ids of `text`, which must be UTF-8. Not of a tokenizer that has ids only.
  /// Throws: ErrorKind::input for invalid UTF-8, for a character that the vocabulary cannot express
  /// and would drop, and when a pattern of the file exceeds its matching limits.
  std::vector<std::int32_t> encode(std::string_view text, Encode options) const;

  /// Token ids of the one text that `parts` make when put together. The name of a special token is
  /// that token only where all of it lies outside of plain parts; what a plain part begins and the
  /// next one ends is ordinary text. Added tokens that are not special (such as `<think>`) are
  /// found everywhere: they are words of the vocabulary and steer nothing.
  std::vector<std::int32_t> encode(std::span<const TextPart> parts, Encode options) const;

  /// The same, with where parts end. A counted part that ends within a word costs as much again as
  /// what stands before that between two added tokens.
  Encoded encode_parts(std::span<const TextPart> parts, Encode options) const;

  /// Whether `text` (valid UTF-8) holds the name of a special token, which `encode` without
  /// `Encode::plain` would take for the token.
  bool names_special(std::string_view text) const;

  /// The added tokens that `encode` takes out of `text` (valid UTF-8), none of it plain, in order:
  /// the leftmost first, of several there the longest. White space that a token takes with it is
  /// outside of its place. Throws: ErrorKind::input for invalid UTF-8.
  std::vector<SpecialPlace> find_special(std::string_view text) const;

  /// Text of `ids`. Bytes that are not valid UTF-8 become U+FFFD, as in the Hugging Face library.
  /// `skip_special` leaves out special tokens. Throws: ErrorKind::input for an id that is not in
  /// the vocabulary.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  /// Whether it is one of the tokens that are found in the text itself: special ones, and others
  /// that were added to the vocabulary.
  bool is_added(std::int32_t id) const;

  /// Whether it is one of those that decoding leaves out on request.
  bool is_special(std::int32_t id) const;

  /// Number of ids, added tokens included: every id is below it. The model's embedding may have
  /// more rows.
  std::int64_t vocab_size() const;

  /// The id of a token as written in the file, added tokens included.
  std::optional<std::int32_t> id(std::string_view token) const;

  std::optional<std::int32_t> bos_id() const;

  /// Throws: ErrorKind::input if the model folder names no end token.
  std::int32_t eos_id() const;

  /// The same, or nothing.
  std::optional<std::int32_t> find_eos_id() const;

  /// The file that was read, for messages.
  const std::filesystem::path& file() const;

  /// Hash of everything that decides ids: the file, the begin and the end token.
  std::string fingerprint() const;

 private:
  struct Parts;
  void require_text_and_utf8(std::string_view text) const;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace finetune::tokenizer
