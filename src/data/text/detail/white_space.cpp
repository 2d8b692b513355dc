// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/white_space.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace finetune::data {
namespace {

using namespace std::string_view_literals;

// Every code point for which Python's str.isspace is true, as UTF-8.
constexpr std::array<std::string_view, 29> spaces = {
    "\t"sv,           "\n"sv,           "\v"sv,           "\f"sv,           "\r"sv,
    "\x1C"sv,         "\x1D"sv,         "\x1E"sv,         "\x1F"sv,         " "sv,
    "\xC2\x85"sv,     "\xC2\xA0"sv,     "\xE1\x9A\x80"sv, "\xE2\x80\x80"sv, "\xE2\x80\x81"sv,
    "\xE2\x80\x82"sv, "\xE2\x80\x83"sv, "\xE2\x80\x84"sv, "\xE2\x80\x85"sv, "\xE2\x80\x86"sv,
    "\xE2\x80\x87"sv, "\xE2\x80\x88"sv, "\xE2\x80\x89"sv, "\xE2\x80\x8A"sv, "\xE2\x80\xA8"sv,
    "\xE2\x80\xA9"sv, "\xE2\x80\xAF"sv, "\xE2\x81\x9F"sv, "\xE3\x80\x80"sv};

}  // namespace

std::string_view strip_left(std::string_view text) {
  const auto begins = [&](std::string_view space) { return text.starts_with(space); };
  for (auto found = std::find_if(spaces.begin(), spaces.end(), begins); found != spaces.end();
       found = std::find_if(spaces.begin(), spaces.end(), begins)) {
    text.remove_prefix(found->size());
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (auto found = std::find_if(spaces.begin(), spaces.end(), ends); found != spaces.end();
       found = std::find_if(spaces.begin(), spaces.end(), ends)) {
    text.remove_suffix(found->size());
  }
  return text;
}

std::string_view strip(std::string_view text) {
  return strip_right(strip_left(text));
}

std::string_view strip_left(std::string_view text, std::string_view characters) {
  return text.substr(std::min(text.find_first_not_of(characters), text.size()));
}

std::string_view strip_right(std::string_view text, std::string_view characters) {
  return text.substr(0, text.find_last_not_of(characters) + 1);
}

}  // namespace finetune::data
