// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/sizes.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::adapters::lora {
namespace {

// Patterns come from other people's files, and names have a hundred characters. Where there are
// many, as of files with one for each module, each may take fewer steps.
constexpr std::size_t most_steps = 100'000, least_steps = 2'000, steps_of_all = 10'000'000;
constexpr std::size_t most_patterns = 4096;
constexpr std::size_t longest_key = 1000;

[[noreturn]] void fail_pattern(const std::string& where, const std::string& key,
                               const std::string& why) {
  core::fail(core::ErrorKind::input,
             {where, fmt::format("the pattern \"{}\" cannot be used", core::one_line(key)),
              core::one_line(why),
              "Name modules, such as q_proj or layers.0.mlp.up_proj, or write a regular expression "
              "for the end of their names."});
}

std::string message_of(int problem) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(problem, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct ModulePattern::Code {
  explicit Code(pcre2_code* made) : code(made) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

ModulePattern::ModulePattern(const std::string& key, const std::string& where, std::size_t count)
    : key_(key),
      where_(where),
      most_steps_(static_cast<std::uint32_t>(
          std::clamp(steps_of_all / std::max<std::size_t>(1, count), least_steps, most_steps))) {
  if (key.size() > longest_key || key.empty())
    fail_pattern(where, key.substr(0, 60), "it has 1 to 1000 bytes");
  const std::string pattern = "(.*\\.)?(" + key + ")$";
  int problem = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY | PCRE2_UTF, &problem, &at, nullptr);
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

std::optional<PatternValue> PatternValue::parse(std::string_view entry) {
  const std::size_t at = entry.rfind('=');
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  std::string_view number = entry.substr(at + 1);
  while (number.starts_with(' '))
    number.remove_prefix(1);
  std::string_view key = entry.substr(0, at);
  while (key.ends_with(' '))
    key.remove_suffix(1);
  PatternValue made{std::string(key), 0};
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, made.value);
  const bool is_number = error == std::errc() && stop == end && std::isfinite(made.value);
  if (!is_number || key.empty()) return std::nullopt;
  return made;
}

std::string PatternValue::text() const {
  return key + "=" + core::round_trip(value);
}

LowRankSizes::LowRankSizes(const Settings& settings, const std::string& where)
    : rank_(settings.r),
      alpha_(settings.alpha),
      use_rslora_(settings.use_rslora),
      ranks_(read(settings.rank_pattern, where)),
      alphas_(read(settings.alpha_pattern, where)) {}

std::vector<LowRankSizes::Entry> LowRankSizes::read(const std::vector<std::string>& entries,
                                                    const std::string& where) {
  if (entries.size() > most_patterns) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("holds {} patterns of modules", entries.size()),
                fmt::format("{} are the most", most_patterns),
                "Let one regular expression name several modules."});
  }
  std::vector<Entry> made;
  for (const std::string& entry : entries) {
    const auto parsed = PatternValue::parse(entry);
    core::check(parsed.has_value(), "patterns were checked when they were read");
    made.push_back({ModulePattern(parsed->key, where, entries.size()), parsed->value, entry});
  }
  return made;
}

const LowRankSizes::Entry* LowRankSizes::find(const std::vector<Entry>& entries,
                                              std::string_view module) {
  const auto found = std::ranges::find_if(
      entries, [&](const Entry& entry) { return entry.pattern.matches(module); });
  return found == entries.end() ? nullptr : &*found;
}

std::int64_t LowRankSizes::rank(std::string_view module) const {
  const Entry* entry = find(ranks_, module);
  return entry == nullptr ? rank_ : static_cast<std::int64_t>(entry->value);
}

double LowRankSizes::alpha(std::string_view module) const {
  const Entry* entry = find(alphas_, module);
  return entry == nullptr ? alpha_ : entry->value;
}

double LowRankSizes::scale(std::string_view module) const {
  const auto r = static_cast<double>(rank(module));
  return alpha(module) / (use_rslora_ ? std::sqrt(r) : r);
}

std::vector<std::string> LowRankSizes::unused(const std::vector<std::string>& modules) const {
  std::vector<std::string> texts;
  for (const auto* entries : {&ranks_, &alphas_}) {
    for (const Entry& entry : *entries) {
      const auto is_match = [&](const std::string& module) {
        return entry.pattern.matches(module);
      };
      if (std::ranges::none_of(modules, is_match)) texts.push_back(entry.text);
    }
  }
  return texts;
}

}  // namespace finetune::adapters::lora
