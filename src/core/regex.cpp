// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/regex.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::core {
namespace {

// What an expression may try at one place of a text: no more than a blink.
constexpr std::uint32_t most_steps = 1'000'000;

const char* at(std::string_view text) {
  return text.empty() ? "" : text.data();
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }

  /// Calls f(begin, end, group) for each match.
  void for_each(std::string_view text,
                const std::function<void(std::size_t, std::size_t, std::string_view)>& f) const {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
        pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
    const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
        pcre2_match_context_create(nullptr), &pcre2_match_context_free);
    pcre2_set_match_limit(context.get(), most_steps);
    for (std::size_t begin = 0; begin <= text.size();) {
      const int num = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(at(text)), text.size(), begin,
                                  0, data.get(), context.get());
      if (num <= 0) return;
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      std::string_view group = text.substr(ends[0], ends[1] - ends[0]);
      for (std::size_t i = 1; i < static_cast<std::size_t>(num); ++i) {
        if (ends[2 * i] == PCRE2_UNSET) continue;
        group = text.substr(ends[2 * i], ends[2 * i + 1] - ends[2 * i]);
        break;
      }
      f(ends[0], ends[1], group);
      begin = ends[1] > ends[0] ? ends[1] : ends[1] + 1;
    }
  }
};

Regex::Regex(const std::string& pattern, bool ignores_case, const std::string& where) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  const std::uint32_t options =
      PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE | (ignores_case ? PCRE2_CASELESS : 0u);
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(at(pattern)), pattern.size(), options,
                             &error, &offset, nullptr);
  if (code->code == nullptr) {
    char text[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    fail(ErrorKind::input,
         {where, fmt::format("\"{}\" is no regular expression", one_line(pattern)),
          fmt::format("at character {}: {}", offset + 1, text), "Correct it."});
  }
  code_ = std::move(code);
}

std::vector<std::string> Regex::find_all(std::string_view text) const {
  std::vector<std::string> found;
  code_->for_each(
      text, [&](std::size_t, std::size_t, std::string_view group) { found.emplace_back(group); });
  return found;
}

bool Regex::matches_beginning(std::string_view text) const {
  bool is_found = false;
  for_each(text, [&](std::size_t begin, std::size_t) { is_found |= begin == 0; });
  return is_found;
}

void Regex::for_each(std::string_view text,
                     const std::function<void(std::size_t, std::size_t)>& f) const {
  code_->for_each(text,
                  [&](std::size_t begin, std::size_t end, std::string_view) { f(begin, end); });
}

std::vector<std::string> Regex::split(std::string_view text) const {
  std::vector<std::string> parts;
  std::size_t done = 0;
  for_each(text, [&](std::size_t begin, std::size_t end) {
    parts.emplace_back(text.substr(done, begin - done));
    done = end;
  });
  parts.emplace_back(text.substr(done));
  return parts;
}

std::string Regex::removed_from(std::string_view text) const {
  std::string rest;
  for (const std::string& part : split(text))
    rest += part;
  return rest;
}

}  // namespace finetune::core
