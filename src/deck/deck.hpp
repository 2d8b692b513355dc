#pragma once
// SPDX-License-Identifier: Apache-2.0
// The only reader of TOML: strict, all problems at once, and its own reference.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deck/table.hpp"

namespace finetune::deck {

struct Contents;

/// A deck is read in three steps: construct it from its text, let every folder bind the keys it
/// owns (each through the Table of its name), then `finish`.
///
///     deck::Deck deck(text, "input.toml", {"optimizer.lr=1e-4"});
///     deck::Table table = deck.table("optimizer", "How the weights are updated.");
///     table.real({"lr", deck::Restart::free, "Peak learning rate."}, lr, {.min = 0.0});
///     deck.finish();
class Deck {
 public:
  /// `file_name` begins the messages. `overrides` are arguments table.key=value that take the place
  /// of the deck's values.
  /// Throws: ErrorKind::deck for text that is not TOML (the first error only), or that is larger,
  /// longer or deeper than any deck; ErrorKind::command_line for overrides of another form.
  Deck(std::string text, std::string file_name, const std::vector<std::string>& overrides);
  ~Deck();
  Deck(Deck&& other) noexcept;
  Deck& operator=(Deck&& other) noexcept;

  /// A deck without text, where binding only collects what there is to know about the keys.
  static Deck for_reference();

  /// The table `name`, to bind keys to. Asked for again it gives the same table, so that several
  /// folders may own keys of one; the first sentence stays.
  Table table(std::string_view name, std::string_view sentence);

  /// To be called after everything is bound, and again if problems may have been found since.
  /// Throws: one ErrorKind::deck that holds every problem of the deck: unknown tables and keys,
  /// wrong types, values out of range, missing keys, and what was said to Table::problem.
  void finish();

  /// TOML of every bound key with its value; reads back to the same values.
  std::string resolved() const;

  /// TOML of every bound key with its default and all that is known about it in comments.
  std::string reference() const;

  /// "table.key" and value (as in TOML) of the keys that a restart must not change.
  std::vector<std::pair<std::string, std::string>> fixed_values() const;

 private:
  explicit Deck(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;  // never moves: Tables point to it
};

}  // namespace finetune::deck
