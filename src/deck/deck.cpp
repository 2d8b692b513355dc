// SPDX-License-Identifier: Apache-2.0
#include "deck/deck.hpp"

#include <algorithm>

#include "deck/detail/contents.hpp"
#include "deck/detail/overrides.hpp"
#include "deck/detail/unknown.hpp"

namespace finetune::deck {

Deck::Deck(std::string text, std::string file_name, const std::vector<std::string>& overrides)
    : contents_(std::make_unique<Contents>()) {
  // A byte order mark would shift the columns of the first line.
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  contents_->source = {std::move(file_name), std::move(text)};
  contents_->document = parse(contents_->source);
  apply_overrides(overrides, contents_->document);
}

Deck::Deck(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}

Deck::~Deck() = default;
Deck::Deck(Deck&& other) noexcept = default;
Deck& Deck::operator=(Deck&& other) noexcept = default;

Deck Deck::for_reference() {
  auto contents = std::make_unique<Contents>();
  contents->source.file_name = "reference";
  contents->is_reference = true;
  return Deck(std::move(contents));
}

Table Deck::table(std::string_view name, std::string_view sentence) {
  auto& tables = contents_->tables;
  const bool known = std::any_of(tables.begin(), tables.end(),
                                 [&](const BoundTable& table) { return table.name == name; });
  if (!known) tables.push_back({std::string(name), std::string(sentence)});
  return Table(*contents_, name);
}

void Deck::finish() {
  Problems problems = contents_->problems;
  find_unknown(*contents_, problems);
  problems.throw_if_any(contents_->source);
}

}  // namespace finetune::deck
