#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a Deck and its Tables share.

#include <string>
#include <vector>

#include "deck/detail/problems.hpp"
#include "deck/detail/source.hpp"
#include "deck/document.hpp"
#include "deck/row.hpp"

namespace finetune::deck {

struct BoundTable {
  std::string name;
  std::string sentence;
};

struct Contents {
  SourceText source;
  Document document;
  std::vector<BoundTable> tables;  ///< in the order of binding
  std::vector<Row> rows;           ///< in the order of binding
  Problems problems;
  bool is_reference = false;  ///< no text: required keys are not missed
};

}  // namespace finetune::deck
