#pragma once
// SPDX-License-Identifier: Apache-2.0
// Characters of UTF-8 text, which Python counts where C++ counts bytes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::jinja {

/// Each as its bytes; what is not UTF-8 is a character a byte.
std::vector<std::string_view> characters_of(std::string_view text);
std::int64_t num_characters(std::string_view text);
/// Of a text that is not empty.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);
char32_t code_point(std::string_view character);
std::string utf8_of(char32_t code_point);

/// As Python's str.isspace of a character.
bool is_space(char32_t code_point);

/// Without white space, or characters of `chars`, at the ends.
enum class Ends { both, left, right };
std::string_view stripped(std::string_view text, Ends ends);
std::string_view stripped(std::string_view text, Ends ends, std::string_view chars);

}  // namespace finetune::jinja
