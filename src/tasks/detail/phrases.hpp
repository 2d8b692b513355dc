#pragma once
// SPDX-License-Identifier: Apache-2.0
// Words, sentences and phrases of an answer.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/regex.hpp"

namespace finetune::tasks {

using core::Regex;

/// Without white space at its ends.
std::string stripped(std::string_view text);

/// As a regular expression that matches it alone.
std::string literal(std::string_view text);

/// As Python's `re` compiles it: white space, letters and words are those of Unicode.
Regex expression(const std::string& pattern, bool ignores_case = false,
                 const std::string& where = "an instruction");

std::int64_t num_matches(const Regex& regex, std::string_view text);
bool is_found(const Regex& regex, std::string_view text);

/// Sentences end at '.', '?' or '!' before white space, but not at the '.' of an abbreviation, an
/// initial or a number in the middle of one.
std::int64_t num_sentences(const std::string& text);

/// Words in capitals, contractions in two ("DON'T": DO and N'T).
std::int64_t num_capital_words(const std::string& text);

/// Whether it has letters with two cases, and all are large (or small).
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

}  // namespace finetune::tasks
