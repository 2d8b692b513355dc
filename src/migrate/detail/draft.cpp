// SPDX-License-Identifier: Apache-2.0
#include "migrate/detail/draft.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::migrate {
namespace {

constexpr std::size_t widest = 100;
constexpr auto tables = std::to_array<std::string_view>(
    {"model", "data", "adapter", "parallel", "precision", "optimizer", "train", "checkpoint",
     "evaluate", "metrics", "profile", "nccl"});

/// Those that a reader looks for first.
constexpr auto first_keys = std::to_array<std::string_view>(
    {"model.path", "data.path", "data.format", "data.validation_path", "adapter.name",
     "parallel.sharding", "optimizer.name", "optimizer.lr", "optimizer.schedule", "train.output",
     "train.epochs", "train.max_steps", "train.global_batch", "train.micro_batch"});

/// `text` as comment lines that are broken at blanks; further ones begin with `indent`.
std::string comment(const std::string& text, const std::string& indent = "") {
  std::string out, line = "#";
  const std::string safe = core::one_line(text);
  std::string_view rest = safe;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, end);
    if (line.size() > 1 + indent.size() && line.size() + 1 + word.size() > widest) {
      out += line + "\n";
      line = "#" + indent;
    }
    line += fmt::format(" {}", word);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out + line + "\n";
}

std::string_view table_of(std::string_view key) {
  return key.substr(0, key.find('.'));
}

/// Keys with the same note share a line.
void add_note(std::vector<std::pair<std::string, std::vector<std::string>>>& notes,
              const std::string& name, const std::string& note) {
  const auto found =
      std::ranges::find(notes, note, &std::pair<std::string, std::vector<std::string>>::first);
  if (found == notes.end()) {
    notes.push_back({note, {name}});
  } else if (std::ranges::find(found->second, name) == found->second.end()) {
    found->second.push_back(name);
  }
}

std::string paragraph(const std::string& title,
                      const std::vector<std::pair<std::string, std::vector<std::string>>>& notes) {
  if (notes.empty()) return "";
  std::string out = fmt::format("\n# {}:\n", title);
  for (const auto& [note, names] : notes)
    out += comment(fmt::format("  {}: {}", fmt::join(names, ", "), note), "   ");
  return out;
}

}  // namespace

Draft::Draft(std::string where, std::string title, const Options& options)
    : where_(std::move(where)), title_(std::move(title)), options_(options) {
  for (const auto& [key, value] : options.given)
    entries_.push_back({key, value, "as the command line says"});
}

void Draft::remember(std::string_view fact, const std::string& name, const Node& value) {
  facts_.emplace_back(fact, Fact{name, value});
}

const Fact* Draft::fact(std::string_view name) const {
  asked_.emplace(name);
  const auto found = std::ranges::find_if(facts_, [&](const auto& entry) {
    return entry.first == name && !entry.second.value.is_empty() &&
           entry.second.value.text != "auto";
  });
  return found == facts_.end() ? nullptr : &found->second;
}

bool Draft::is_on(std::string_view name) const {
  asked_.emplace(name);
  return std::ranges::any_of(facts_, [&](const auto& entry) {
    return entry.first == name && !entry.second.value.is_off();
  });
}

std::optional<std::int64_t> Draft::integer(std::string_view name) const {
  const Fact* found = fact(name);
  return found == nullptr ? std::nullopt : found->value.integer();
}

std::optional<double> Draft::number(std::string_view name) const {
  const Fact* found = fact(name);
  return found == nullptr ? std::nullopt : found->value.number();
}

std::string Draft::text(std::string_view name) const {
  const Fact* found = fact(name);
  return found == nullptr ? "" : found->value.text;
}

void Draft::set(const std::string& key, const std::string& value, const std::string& comment) {
  const bool says_nothing = key.ends_with("." + comment);
  if (!has(key)) entries_.push_back({key, value, says_nothing ? "" : core::one_line(comment)});
}

void Draft::drop(const std::string& key) {
  if (!is_given(key)) std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

bool Draft::has(const std::string& key) const {
  return std::ranges::find(entries_, key, &Entry::key) != entries_.end();
}

bool Draft::is_given(const std::string& key) const {
  return std::ranges::any_of(options_.given, [&](const auto& entry) { return entry.first == key; });
}

std::string Draft::value(const std::string& key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  return found == entries_.end() ? "" : found->value;
}

void Draft::note(Kind kind, const std::string& name, const std::string& note) {
  add_note(kind == Kind::needless ? needless_ : differs_, name, note);
}

void Draft::leave_unknown(const std::string& name, const Node& value) {
  unknown_.push_back(fmt::format("{} = {}", name, value.shown()));
}

void Draft::stop(const Node& node, const std::string& problem, const std::string& why,
                 const std::string& lifts) {
  const std::string key = lifts.substr(0, lifts.find('='));
  if (!key.empty() && is_given(key)) {
    note(Kind::differs, problem, why);
    return;
  }
  const core::Message message = {
      node.line > 0 ? fmt::format("{}:{}", where_, node.line) : where_, problem, why,
      lifts.empty() ? "No deck can say it: run it with the program that it was written for."
                    : fmt::format("To have a deck all the same, add {} to the command.", lifts)};
  const std::string text = core::to_string(message);
  if (std::ranges::find(stops_, text) == stops_.end()) stops_.push_back(text);
}

void Draft::finish() {
  for (const auto& [fact, its] : facts_) {
    if (!asked_.contains(fact))
      note(Kind::needless, fmt::format("{} = {}", its.name, its.value.shown()),
           "no key of a deck depends on it");
  }
  if (stops_.empty()) return;
  std::string text = fmt::format("{}", fmt::join(stops_, "\n"));
  if (stops_.size() > 1) text += fmt::format("\n{}: {} problems.", where_, stops_.size());
  throw core::Error(core::ErrorKind::deck, text);
}

std::string Draft::deck() const {
  std::string out =
      comment(fmt::format("Made from {}, a configuration of {}.", core::one_line(where_), title_));
  for (const std::string& line : head_)
    out += comment(line);
  std::vector<Entry> entries = entries_;
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) {
    return std::ranges::find(first_keys, entry.key) - first_keys.begin();
  });
  for (const std::string_view table : tables) {
    bool is_first = true;
    for (const Entry& entry : entries) {
      if (table_of(entry.key) != table) continue;
      if (std::exchange(is_first, false)) out += fmt::format("\n[{}]\n", table);
      const std::string line =
          fmt::format("{} = {}", entry.key.substr(table.size() + 1), entry.value);
      const bool fits = line.size() + entry.comment.size() + 4 <= widest;
      if (!fits && !entry.comment.empty()) out += comment(entry.comment);
      out += fits && !entry.comment.empty() ? fmt::format("{}  # {}\n", line, entry.comment)
                                            : line + "\n";
    }
  }
  out += paragraph("Not kept, or kept differently", differs_);
  out += paragraph("Not needed here", needless_);
  if (!unknown_.empty()) {
    out += "\n# Unknown keys, of which nothing is kept:\n";
    for (const std::string& each : unknown_)
      out += comment("  " + each, "   ");
  }
  if (!empty_.empty())
    out += "\n" + comment(fmt::format("Empty there: {}.", fmt::join(empty_, ", ")));
  return out;
}

}  // namespace finetune::migrate
