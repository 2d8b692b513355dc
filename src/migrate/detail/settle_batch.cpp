// SPDX-License-Identifier: Apache-2.0
// Batches and the length of the run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"

namespace finetune::migrate {
namespace {

constexpr std::int64_t most = 1'000'000'000;

/// Within what products of them can hold; 0 is nothing.
std::int64_t at_least_one(std::optional<std::int64_t> value) {
  return std::clamp<std::int64_t>(value.value_or(1), 1, most);
}

std::int64_t size_of(const Draft& draft, const char* fact) {
  return std::min<std::int64_t>(at_least_one(draft.integer(fact)), 1 << 16);
}

/// Ranks that compute different sequences.
std::int64_t data_parallel_ranks(Draft& draft) {
  const std::int64_t together = size_of(draft, "tp") * size_of(draft, "cp");
  const std::int64_t replicas = size_of(draft, "dp_shard") * size_of(draft, "dp_replicate");
  const std::int64_t said = size_of(draft, "nodes") * size_of(draft, "devices");
  draft.ranks =
      draft.options().ranks.value_or(std::max({said, together * replicas, size_of(draft, "ep")}));
  return std::max<std::int64_t>(1, draft.ranks / together);
}

void settle_global_batch(Draft& draft) {
  const std::int64_t ranks = data_parallel_ranks(draft);
  const auto whole = draft.integer("global_batch");
  const std::int64_t micro = std::min(at_least_one(draft.integer("micro_batch")), most / 1000);
  const auto per_device = draft.integer("device_batch");
  const std::int64_t passes =
      per_device ? std::max<std::int64_t>(1, *per_device / micro)
                 : std::min(at_least_one(draft.integer("accumulation")), most / 1000);
  draft.set("train.micro_batch", std::to_string(micro), "per device");
  if (whole && *whole > 0) {
    draft.set("train.global_batch", std::to_string(*whole), draft.fact("global_batch")->name);
    return;
  }
  draft.set("train.global_batch", std::to_string(micro * passes * ranks),
            fmt::format("{} per device x {} accumulated x {} rank{}", micro, passes, ranks,
                        ranks == 1 ? "" : "s"));
  if (!draft.options().ranks && draft.ranks == 1)
    draft.say("train.global_batch is that of one rank: import it with --ranks N for that of N.");
}

/// How many of so many samples are held out; theirs is a part, or a number.
double held_out(const Draft& draft, double samples) {
  const double size = draft.number("val_size").value_or(0);
  if (!draft.validation().empty() || !(size > 0)) return 0;
  return std::min(samples - 1, size < 1 ? std::ceil(samples * size) : std::floor(size));
}

/// Steps where the number of samples is known.
void settle_samples(Draft& draft, double epochs) {
  const Fact* fact = draft.fact("max_samples");
  const auto each = draft.integer("max_samples");
  if (fact == nullptr || !each || *each <= 0 || *each > most) return;
  const std::string shown = fmt::format("{} = {}", fact->name, fact->value.shown());
  const auto num_sets = std::max<std::int64_t>(1, std::ssize(draft.data()));
  const auto batch =
      Node{.kind = Node::Kind::text, .text = draft.value("train.global_batch")}.integer();
  if (draft.has("train.max_steps") || draft.value("data.packing") == "true" || !batch ||
      *batch < 1) {
    draft.note(Kind::differs, shown, "data sets are read whole, or data.weights of each per epoch");
    return;
  }
  const double all = static_cast<double>(*each) * static_cast<double>(num_sets);
  const double trained = all - held_out(draft, all);
  const auto steps =
      static_cast<std::int64_t>(std::ceil(trained * epochs / static_cast<double>(*batch)));
  draft.set("train.max_steps", std::to_string(steps), shown);
  draft.note(Kind::differs, shown,
             fmt::format("data sets are read whole, and train.max_steps ends the run after as many "
                         "samples ({:.0f} x {:g} epochs); remove it if they have fewer",
                         trained, epochs));
}

}  // namespace

void settle_batch(Draft& draft) {
  settle_global_batch(draft);
  const auto steps = draft.integer("max_steps");
  if (steps && *steps > 0)
    draft.set("train.max_steps", std::to_string(*steps), draft.fact("max_steps")->name);
  const Fact* fact = draft.fact("epochs");
  const double epochs = draft.number("epochs").value_or(1);
  const auto per_epoch = draft.integer("steps_per_epoch");
  if (per_epoch && *per_epoch > 0 && *per_epoch <= most && epochs > 0 && epochs <= 1e6)
    draft.set("train.max_steps",
              std::to_string(
                  static_cast<std::int64_t>(std::ceil(static_cast<double>(*per_epoch) * epochs))),
              fmt::format("{} x {:g} epochs", draft.fact("steps_per_epoch")->name, epochs));
  if (fact == nullptr) return;
  if (fact->value.number() && epochs > 0) {
    const auto whole = fact->value.integer();
    draft.set("train.epochs", whole ? std::to_string(*whole) : deck::to_toml(epochs), fact->name);
    settle_samples(draft, epochs);
  } else if (!draft.has("train.max_steps")) {
    draft.stop(fact->value, fmt::format("{} = {}", fact->name, fact->value.shown()),
               "train.epochs is a number above 0", "train.max_steps=STEPS");
  }
}

}  // namespace finetune::migrate
