#pragma once
// SPDX-License-Identifier: Apache-2.0
// Messages by what they are about; their words are on the golden page of the test's program.

#include <string>
#include <string_view>
#include <vector>

namespace finetune::tests {

/// Keys, names, values, numbers and excerpts of a deck that a message has to hold, each as a whole
/// word: "3" is not found in "13". No prose: that is the page's.
using Facts = std::vector<std::string>;

/// Where a test calls: std::source_location, which Clang 14 does not have.
struct Caller {
  const char* file;
  int line;

  static Caller current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Expects that `message` begins with the place `where` ("input.toml:3", a file, a key, an option,
/// a rank; empty: any) and holds `facts`, and that its words are those of the page.
///
/// The page of a program is tests/golden/messages/PROGRAM.txt, with a section for each test: the
/// different messages that the test passes to this function, in their order. Under mpirun the first
/// rank compares. `tests/messages.sh --write` writes the pages anew.
void expect_message(std::string_view message, std::string_view where, const Facts& facts = {},
                    Caller caller = Caller::current());

/// Expects the place and the facts alone: for words that depend on the machine, on time, or on the
/// number of ranks.
void expect_facts(std::string_view message, std::string_view where, const Facts& facts = {},
                  Caller caller = Caller::current());

/// Expects one line or more in `text`, such as a log or a deck with comments, that hold `facts`;
/// the words of these lines are the page's.
void expect_line_about(std::string_view text, const Facts& facts,
                       Caller caller = Caller::current());

/// Expects only that the words of `message` are the page's.
void expect_words(std::string_view message, Caller caller = Caller::current());

/// Whether `fact` occurs in `text` as a whole word.
bool holds_fact(std::string_view text, std::string_view fact);

/// What the page has for a test, "Suite.Test". A run that provokes the messages of another test
/// compares them with its section.
std::vector<std::string> words_of(const std::string& test);

/// `message` as pages have it: folders of this machine by the names <build>, <source> and <tmp>.
std::string without_folders(std::string_view message);

/// The error or warning in what a program wrote to stderr, without what mpirun adds to it.
std::string said_in(std::string_view err);

}  // namespace finetune::tests
