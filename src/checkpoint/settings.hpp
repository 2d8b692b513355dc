#pragma once
// SPDX-License-Identifier: Apache-2.0
// The deck's table [checkpoint].

#include <cstdint>
#include <string>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/retire.hpp"

namespace finetune::deck {
class Table;
}

namespace finetune::checkpoint {

struct Settings {
  std::int64_t save_steps = 0;
  double save_minutes = 30;
  std::int64_t save_total_limit = 2;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 0;
  std::string files = "node";
  std::string access = "owner";
  bool is_async = true;
  std::string when_busy = "wait";
  std::string on_error = "continue";
  bool read_back = true;
  bool probe = false;
  std::string local_dir;
  std::int64_t local_steps = 0;
  double local_minutes = 0;
  std::string resume = "auto";
  std::int64_t max_starts = 3;

  void bind(deck::Table& table);

  Files layout() const { return files == "rank" ? Files::rank : Files::node; }
  Access who() const {
    return access == "group" ? Access::group : access == "all" ? Access::all : Access::owner;
  }
  Retention retention() const {
    return {.newest = save_total_limit, .every = keep_every, .best = keep_best};
  }
  /// Whether training continues after some saves, so that a copy in host memory pays.
  bool saves_while_training() const {
    return save_steps > 0 || save_minutes > 0 || has_local_level();
  }
  bool has_local_level() const { return !local_dir.empty(); }

 private:
  void bind_when(deck::Table& table);
  void bind_how(deck::Table& table);
  void bind_retention(deck::Table& table);
  void bind_local_level(deck::Table& table);
  void bind_resume(deck::Table& table);
};

}  // namespace finetune::checkpoint
