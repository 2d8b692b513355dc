#pragma once
// SPDX-License-Identifier: Apache-2.0
// Settings of every type of key, and what the tests of this folder do with them.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "deck/deck.hpp"

namespace finetune::deck {

struct Sample {
  std::string path;
  std::string init = "pretrained";
  std::string sharding = "FULL_SHARD";
  std::int64_t tp = 1;
  double lr = 1e-5;
  double beta2 = 1.0;
  std::int64_t warmup_steps = -1;
  bool fused = false;

  void bind(Deck& deck) {
    Table model = deck.table("model", "The model that is trained.");
    model.text({"path", Restart::fixed, "Folder of the model.", "", true}, path);
    model.choice({"init", Restart::fixed, "Where the weights come from."}, init,
                 {"pretrained", "random"});
    Table parallel = deck.table("parallel", "How the work is shared.");
    parallel.choice({"sharding", Restart::free, "What is sharded."}, sharding,
                    {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"});
    parallel.integer({"tp", Restart::free, "Tensor parallel size.", "ranks"}, tp,
                     {.min = 1, .max = 64});
    Table optimizer = deck.table("optimizer", "How the weights are updated.");
    optimizer.real({"lr", Restart::free, "Peak learning rate."}, lr, {.above = 0.0});
    optimizer.real({"beta2", Restart::fixed, "Decay of the second moment."}, beta2,
                   {.min = 0.0, .max = 1.0});
    optimizer.integer({"warmup_steps", Restart::fixed, "Steps of warm-up.", "steps"}, warmup_steps);
    optimizer.boolean({"fused", Restart::free,
                       "Whether all the parameters of a unit are updated by one kernel, which is "
                       "faster and needs less memory than one after the other."},
                      fused);
  }
};

inline Sample read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Deck deck(text, "input.toml", overrides);
  Sample sample;
  sample.bind(deck);
  deck.finish();
  return sample;
}

/// The message with which `text` is refused; empty if it is not.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {},
                           core::ErrorKind kind = core::ErrorKind::deck) {
  try {
    read(text, overrides);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

/// The same for a deck whose only fault is in `lines`: the required key stands above them.
inline std::string refusal_of(const std::string& lines) {
  return refusal("model.path = \"m\"\n" + lines);
}

}  // namespace finetune::deck
