#pragma once
// SPDX-License-Identifier: Apache-2.0
// The kinds of instructions that answers are checked for.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace finetune::tasks {

using Check = std::function<bool(const std::string& answer)>;

/// What is asked of an answer's language needs a library that knows languages.
inline constexpr const char* language_id = "language:response_language";

/// Arguments of one instruction. Each throws ErrorKind::input if it is missing or of another kind.
class CheckArguments {
 public:
  CheckArguments(const core::Json& arguments, std::string where)
      : arguments_(arguments), where_(std::move(where)) {}

  std::string text(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  /// A whole number from 0, also written as 3.0.
  std::int64_t number(const char* key) const;
  /// Whether a count is what `key` ("less than" or "at least") and `of` ask for.
  std::function<bool(std::int64_t)> relation(const char* key, const char* of) const;
  const std::string& where() const { return where_; }

 private:
  const core::Json& at(const char* key, const char* expected) const;
  [[noreturn]] void refuse(const char* key, const char* expected) const;

  const core::Json& arguments_;
  std::string where_;
};

struct CheckKind {
  const char* id;
  Check (*make)(const CheckArguments&);
};

/// All of them: of words and lengths, and of formats.
std::span<const CheckKind> check_kinds();

Check keyword_existence(const CheckArguments& arguments);
Check keyword_frequency(const CheckArguments& arguments);
Check forbidden_words(const CheckArguments& arguments);
Check letter_frequency(const CheckArguments& arguments);
Check number_of_sentences(const CheckArguments& arguments);
Check number_of_paragraphs(const CheckArguments& arguments);
Check number_of_words(const CheckArguments& arguments);
Check first_word_of_paragraph(const CheckArguments& arguments);
Check capital_words(const CheckArguments& arguments);

}  // namespace finetune::tasks
