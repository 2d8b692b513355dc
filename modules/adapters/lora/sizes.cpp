// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::adapters::lora {
namespace {

constexpr std::size_t most_patterns = 4096;

}  // namespace

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
    made.push_back(
        {model::ModulePattern(parsed->key, where, entries.size()), parsed->value, entry});
  }
  return made;
}

const LowRankSizes::Entry* LowRankSizes::find(const std::vector<Entry>& entries,
                                              const std::vector<std::string>& names) {
  const auto found = std::ranges::find_if(entries, [&](const Entry& entry) {
    return std::ranges::any_of(
        names, [&](const std::string& module) { return entry.pattern.matches(module); });
  });
  return found == entries.end() ? nullptr : &*found;
}

std::int64_t LowRankSizes::rank_of(const std::vector<std::string>& names) const {
  const Entry* entry = find(ranks_, names);
  return entry == nullptr ? rank_ : static_cast<std::int64_t>(entry->value);
}

double LowRankSizes::alpha_of(const std::vector<std::string>& names) const {
  const Entry* entry = find(alphas_, names);
  return entry == nullptr ? alpha_ : entry->value;
}

double LowRankSizes::scale_of(const std::vector<std::string>& names) const {
  const auto r = static_cast<double>(rank_of(names));
  return alpha_of(names) / (use_rslora_ ? std::sqrt(r) : r);
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
