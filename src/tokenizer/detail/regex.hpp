#pragma once
// SPDX-License-Identifier: Apache-2.0
// Patterns of tokenizer.json: Oniguruma's dialect, compiled by PCRE2 (JIT) under limits.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace finetune::tokenizer {

struct ByteRange {
  std::size_t begin;
  std::size_t end;
};

/// What a thread needs to match, made when first used: one for each call, not shared between
/// threads. Its calls of Regex::find have a budget of processor time together.
class Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

 private:
  friend class Regex;
  struct State;
  State& state();
  std::unique_ptr<State> state_;
};

class Regex {
 public:
  /// `pattern` as Oniguruma (Ruby syntax) reads it, which is what the Hugging Face library uses.
  /// `place` begins every error message.
  /// Throws: ErrorKind::input if the pattern cannot be compiled, or would mean something else here.
  Regex(const std::string& pattern, const std::string& place);

  /// The leftmost match at or after byte `from` of `text` (valid UTF-8).
  /// Throws: ErrorKind::input if the match needs more steps or memory than allowed, or all matches
  /// together more time than any useful pattern: two seconds and ten more for a megabyte.
  std::optional<ByteRange> find(std::string_view text, std::size_t from, Matcher& matcher) const;

 private:
  /// The leftmost match that starts in [from, last_start].
  std::optional<ByteRange> find_between(std::string_view text, std::size_t from,
                                        std::size_t last_start, Matcher& matcher) const;

  struct Code;
  std::shared_ptr<const Code> code_;
  std::string place_;
};

/// The pattern in PCRE2's dialect. Throws: ErrorKind::input for what the two read differently.
std::string to_pcre2(std::string_view pattern, const std::string& place);

}  // namespace finetune::tokenizer
