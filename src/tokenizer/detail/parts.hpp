#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a tokenizer consists of, whatever file it came from.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/detail/definition.hpp"
#include "tokenizer/detail/end_tokens.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tokenizer {

/// What one call works with, kept for the next one: buffers, and words met before.
struct Workspace {
  Bpe::Scratch bpe;
  Unigram::Scratch unigram;
  std::string normal;
};

/// As many as there were calls at once.
class Workspaces {
 public:
  std::unique_ptr<Workspace> take();
  void give_back(std::unique_ptr<Workspace> workspace);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

/// A text in bytes, valid UTF-8.
struct TextToEncode {
  std::string_view text;
  SpecialNames special;
  std::vector<std::size_t> starts_anew = {};  ///< in order
  std::vector<std::size_t> counted = {};  ///< places whose ids before them are counted; in order

  /// The same for a part of the text; counted are places behind its begin, up to its
  /// end, and the begin of the text.
  TextToEncode part(std::size_t begin, std::size_t end) const;
};

/// Whether what was encoded last is an added token, and takes the white space behind it.
struct AddedEnd {
  bool is_added = false;
  bool takes_space = false;
};

struct Tokenizer::Parts : Definition {
  EndTokens ends;
  std::filesystem::path file;
  std::string fingerprint;
  std::int64_t num_ids = 0;  ///< of a tokenizer that has ids only; else 0

  explicit Parts(Definition definition) : Definition(std::move(definition)) {}

  /// Ids of `text` and, as `options` say, of what goes around it.
  Encoded encode(const TextToEncode& text, Encode options) const;
  /// See Tokenizer::find_special.
  void find_special(std::string_view text, std::vector<SpecialPlace>& places) const;
  std::optional<std::int32_t> id(std::string_view token) const;

 private:
  SpecialNames after_normalizing(std::string_view piece, std::string_view normal,
                                 const SpecialNames& special, Prefix prefix,
                                 Matcher& matcher) const;
  void encode_text(const TextToEncode& text, bool continues, bool has_own_prefix,
                   Workspace& workspace, Encoded& encoded) const;
  AddedEnd encode_stretch(const TextToEncode& stretch, AddedEnd before, bool continues,
                          bool has_own_prefix, Workspace& workspace, Encoded& encoded) const;
  void encode_piece(std::string_view piece, const SpecialNames& special, Prefix prefix,
                    bool starts_text, Matcher& matcher, std::string& buffer, WordSink& words,
                    std::vector<std::int32_t>& ids) const;
  std::size_t piece_bytes(std::int32_t id) const;
  std::size_t num_within(std::span<const std::int32_t> beginning,
                         std::span<const std::int32_t> ids) const;

  mutable Workspaces workspaces_;
};

}  // namespace finetune::tokenizer
