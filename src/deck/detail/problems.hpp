#pragma once
// SPDX-License-Identifier: Apache-2.0
// Everything that is wrong with a deck, collected, so that its author sees all of it at once.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "deck/detail/source.hpp"

namespace finetune::deck {

struct DeckProblem {
  TextPlace place;
  std::string problem;
  std::string why;
  std::string remedy;

  DeckProblem(TextPlace its_place, std::string its_problem, std::string its_why,
              std::string its_remedy)
      : place(std::move(its_place)),
        problem(std::move(its_problem)),
        why(std::move(its_why)),
        remedy(std::move(its_remedy)) {}
};

class Problems {
 public:
  void add(DeckProblem problem) { problems_.push_back(std::move(problem)); }
  bool empty() const { return problems_.empty(); }

  /// Throws: one ErrorKind::deck with a block a problem (message, source line, caret), those of the
  /// file as a whole first, then by line, then those of the command line; nothing if there are
  /// none.
  void throw_if_any(const SourceText& source) const;

 private:
  std::vector<DeckProblem> problems_;
};

/// Throws: ErrorKind::deck holding this problem alone.
[[noreturn]] void fail(const SourceText& source, DeckProblem problem);

}  // namespace finetune::deck
