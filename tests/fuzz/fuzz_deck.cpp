// SPDX-License-Identifier: Apache-2.0
// A deck, and behind a NUL byte arguments key=value, one a line: refused, or settings whose
// resolved deck reads back to the same.

#include <sstream>
#include <vector>

#include "deck/deck.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

namespace {

/// A key of every type, in three tables.
void bind(deck::Deck& deck) {
  static std::string path, init, sharding;
  static std::int64_t tp, steps;
  static double lr, beta2;
  static bool fused;
  path = "m", init = "pretrained", sharding = "FULL_SHARD";
  tp = 1, steps = -1, lr = 1e-5, beta2 = 1.0, fused = false;
  using deck::Restart;
  deck::Table model = deck.table("model", "The model.");
  model.text({"path", Restart::fixed, "Folder of the model.", "", true}, path);
  model.choice({"init", Restart::fixed, "Where the weights come from."}, init,
               {"pretrained", "random"});
  deck::Table parallel = deck.table("parallel", "How the work is shared.");
  parallel.choice({"sharding", Restart::free, "What is sharded."}, sharding,
                  {"FULL_SHARD", "NO_SHARD"});
  parallel.integer({"tp", Restart::free, "Tensor parallel size."}, tp, {.min = 1, .max = 64});
  deck::Table optimizer = deck.table("optimizer", "How the weights are updated.");
  optimizer.real({"lr", Restart::free, "Peak learning rate."}, lr, {.above = 0.0});
  optimizer.real({"beta2", Restart::fixed, "Decay."}, beta2, {.min = 0.0, .max = 1.0});
  optimizer.integer({"warmup_steps", Restart::fixed, "Steps of warm-up."}, steps);
  optimizer.boolean({"fused", Restart::free, "Whether one kernel does it."}, fused);
}

std::string resolved(const std::string& text, const std::vector<std::string>& overrides) {
  deck::Deck deck(text, "input.toml", overrides);
  bind(deck);
  deck.finish();
  return deck.resolved();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all = fuzz::text_of(data, size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  std::vector<std::string> overrides;
  if (end < all.size()) {
    std::istringstream lines{std::string(all.substr(end + 1))};
    for (std::string line; std::getline(lines, line);)
      overrides.push_back(line);
  }
  std::string first;
  const std::string where = overrides.empty() ? "input.toml" : "";
  if (!fuzz::accepts(where, [&] { first = resolved(std::string(all.substr(0, end)), overrides); }))
    return 0;
  std::string second;
  const bool again = fuzz::accepts("", [&] { second = resolved(first, {}); });
  fuzz::require(again && first == second, "a resolved deck reads back to the same");
  return 0;
}
