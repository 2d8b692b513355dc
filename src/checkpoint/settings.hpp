#pragma once
// SPDX-License-Identifier: Apache-2.0
// The deck's table [checkpoint].

#include <cstdint>
#include <string>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/retire.hpp"
#include "checkpoint/run_state.hpp"

namespace finetune::deck {
class Table;
}

namespace finetune::checkpoint {

/// A save is due while the last one is still being written.
enum class WhenBusy { wait, skip };
/// A save has failed: go on with the older checkpoint, or stop.
enum class OnError { go_on, stop };

struct CheckpointSettings {
  std::int64_t save_steps = 0;
  double save_epochs = 0;
  double save_minutes = 30;
  std::int64_t save_total_limit = 2;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 0;
  std::string best_by = validation_loss_name;
  Files files = Files::node;
  Access access = Access::owner;
  bool is_async = true;
  WhenBusy when_busy = WhenBusy::wait;
  OnError on_error = OnError::go_on;
  bool read_back = true;
  bool probe = false;
  std::string local_dir;
  std::int64_t local_steps = 0;
  double local_minutes = 0;
  std::string resume = "auto";
  std::int64_t max_starts = 3;

  void bind(deck::Table& table);

  Retention retention() const {
    return {.newest = save_total_limit, .every = keep_every, .best = keep_best};
  }
  /// Whether training continues after some saves, so that a copy in host memory pays.
  bool saves_while_training() const {
    return save_steps > 0 || save_epochs > 0 || save_minutes > 0 || has_local_level();
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
