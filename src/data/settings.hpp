#pragma once
// SPDX-License-Identifier: Apache-2.0
// The table [data].

#include <cstdint>
#include <string>
#include <vector>

#include "data/load.hpp"
#include "data/sampler.hpp"
#include "deck/deck.hpp"

namespace finetune::data {

struct DataSettings {
  std::string path;
  std::string format = "alpaca";
  std::string validation_path;
  double validation_fraction = 0;
  std::int64_t max_seq_length = 512;
  std::string on_overlong = "truncate";
  std::string on_masked = "error";
  bool shuffle = true;
  bool allow_changed = false;

  /// `formats` are the names data.format may have.
  void bind(deck::Table& table, const std::vector<std::string>& formats);

  /// What `load` needs of these settings. `name` begins the data report: "training data".
  DatasetOptions options(std::string name, std::int64_t vocab_size) const;

  Order order() const { return shuffle ? Order::shuffled : Order::as_read; }
};

}  // namespace finetune::data
