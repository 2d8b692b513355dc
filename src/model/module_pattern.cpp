// SPDX-License-Identifier: Apache-2.0
#include "model/module_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::model {
namespace {

// Patterns come from other people's files, and names have a hundred characters. Where there are
// many, as of files with one for each module, each may take fewer steps.
constexpr std::size_t most_steps = 100'000, least_steps = 2'000, steps_of_all = 10'000'000;
constexpr std::size_t longest_key = 1000;

[[noreturn]] void fail_pattern(const std::string& where, const std::string& key,
                               const std::string& why) {
  core::fail(core::ErrorKind::input,
             {where, fmt::format("the pattern \"{}\" cannot be used", core::one_line(key)),
              core::one_line(why),
              "Name modules, such as q_proj or layers.0.mlp.up_proj, or write a regular expression "
              "for their names."});
}

std::string message_of(int problem) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(problem, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

bool is_named(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

struct ModulePattern::Code {
  explicit Code(pcre2_code* made) : code(made) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

ModulePattern::ModulePattern(const std::string& key, const std::string& where, std::size_t count,
                             Matches what)
    : key_(key),
      where_(where),
      most_steps_(static_cast<std::uint32_t>(
          std::clamp(steps_of_all / std::max<std::size_t>(1, count), least_steps, most_steps))) {
  if (key.size() > longest_key || key.empty())
    fail_pattern(where, key.substr(0, 60), "it has 1 to 1000 bytes");
  const bool is_end = what == Matches::end_of_name;
  const std::string pattern = is_end ? "(.*\\.)?(" + key + ")$" : key;
  const std::uint32_t ends = is_end ? PCRE2_DOLLAR_ENDONLY : PCRE2_ENDANCHORED;
  int problem = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_ANCHORED | ends | PCRE2_UTF, &problem, &at, nullptr);
  if (code == nullptr) fail_pattern(where, key, message_of(problem));
  code_ = std::make_shared<const Code>(code);
}

bool ModulePattern::matches(std::string_view module) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), most_steps_);
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(module.data()),
                                module.size(), 0, 0, data.get(), context.get());
  if (found == PCRE2_ERROR_MATCHLIMIT)
    fail_pattern(where_, key_, "it takes too many steps to match a name");
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) fail_pattern(where_, key_, message_of(found));
  return found >= 0;
}

bool ModuleName::is_pattern(std::string_view name) {
  return !std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

ModuleName::ModuleName(const std::string& name, const std::string& where, std::size_t count)
    : name_(name) {
  if (is_pattern(name))
    pattern_ = std::make_shared<const ModulePattern>(name, where, count,
                                                     ModulePattern::Matches::whole_name);
}

bool ModuleName::matches(const std::string& module) const {
  return pattern_ ? pattern_->matches(module) : is_named(module, name_);
}

}  // namespace finetune::model
