#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a tokenizer consists of, whatever file it came from.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
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

struct Tokenizer::Parts : Definition {
  EndTokens ends;
  std::filesystem::path file;
  std::string fingerprint;
  std::int64_t num_ids = 0;  ///< of a tokenizer that has ids only; else 0

  explicit Parts(Definition definition) : Definition(std::move(definition)) {}

  /// Ids of `text` (valid UTF-8) and, as `options` say, of what goes around it.
  std::vector<std::int32_t> encode(std::string_view text, const SpecialNames& special,
                                   Encode options) const;
  /// See Tokenizer::find_special.
  void find_special(std::string_view text, std::vector<SpecialPlace>& places) const;
  std::optional<std::int32_t> id(std::string_view token) const;

 private:
  SpecialNames after_normalizing(std::string_view piece, std::string_view normal,
                                 const SpecialNames& special, Prefix prefix,
                                 Matcher& matcher) const;
  void encode_text(std::string_view text, const SpecialNames& special, bool continues,
                   bool has_own_prefix, Workspace& workspace, std::vector<std::int32_t>& ids) const;

  mutable Workspaces workspaces_;
};

}  // namespace finetune::tokenizer
