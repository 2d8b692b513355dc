#pragma once
// SPDX-License-Identifier: Apache-2.0
// The deck's table [checkpoint].

#include <cstdint>
#include <string>

#include "checkpoint/layout.hpp"

namespace finetune::deck {
class Table;
}

namespace finetune::checkpoint {

struct Settings {
  std::int64_t save_steps = 0;
  std::int64_t save_total_limit = 2;
  std::string files = "node";
  std::string resume = "auto";

  void bind(deck::Table& table);

  Files layout() const { return files == "rank" ? Files::rank : Files::node; }
};

}  // namespace finetune::checkpoint
