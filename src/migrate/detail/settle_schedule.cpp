// SPDX-License-Identifier: Apache-2.0
// The learning rate over the run, and of some tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"
#include "migrate/detail/words.hpp"

namespace finetune::migrate {
namespace {

std::string with_value(const Fact& fact) {
  return fmt::format("{} = {}", fact.name, fact.value.shown());
}

/// As a part of all steps, of which the program takes no more than `most`.
void set_part_of_steps(Draft& draft, const Fact& fact, double part) {
  const auto most = draft.integer("most_warmup");
  const auto all = Node{.kind = Node::Kind::text, .text = draft.value("train.max_steps")}.integer();
  if (!most) {
    draft.set("optimizer.warmup_ratio", deck::to_toml(part), fact.name);
  } else if (all && *all >= 0) {
    auto steps = std::min(static_cast<std::int64_t>(part * static_cast<double>(*all)), *most);
    if (steps == 1) steps = 2;  // as axolotl does
    if (steps > 0) draft.set("optimizer.warmup_steps", deck::to_toml(steps), fact.name);
  } else {
    draft.set("optimizer.warmup_ratio", deck::to_toml(part), fact.name);
    draft.note(Kind::differs, "optimizer.warmup_ratio",
               fmt::format("there it is at most {} steps: set optimizer.warmup_steps = {} if the "
                           "run has more than {}",
                           *most, *most, std::llround(static_cast<double>(*most) / part)));
  }
}

/// The curve of DeepSpeed's, unless it says otherwise.
void note_curve_of_warmup(Draft& draft, const std::string& schedule) {
  constexpr auto of_deepspeed =
      std::to_array<std::string_view>({"warmuplr", "warmupdecaylr", "warmupcosinelr"});
  const Fact* type = draft.fact("warmup_type");
  const bool is_linear = type != nullptr && type->value.text == "linear";
  if (is_linear || std::ranges::find(of_deepspeed, schedule) == of_deepspeed.end()) return;
  draft.note(
      Kind::differs, type == nullptr ? with_value(*draft.fact("schedule")) : with_value(*type),
      "warm-up is linear; there it is the logarithm of the step unless warmup_type is linear");
}

void settle_warmup(Draft& draft) {
  const std::string schedule = lower_case(draft.text("schedule"));
  for (const char* name : {"warmup_steps", "warmup_ratio"}) {
    const Fact* fact = draft.fact(name);
    const auto value = draft.number(name);
    if (fact == nullptr || !value || *value == 0) continue;
    if (schedule == "constant") {
      // What transformers calls constant_with_warmup is another.
      draft.note(Kind::needless, with_value(*fact),
                 "the schedule \"constant\" has no warm-up there");
      continue;
    }
    if (*value < 1)
      set_part_of_steps(draft, *fact, *value);
    else
      draft.set("optimizer.warmup_steps",
                deck::to_toml(static_cast<std::int64_t>(std::ceil(*value))), fact->name);
    note_curve_of_warmup(draft, schedule);
    return;
  }
}

/// What transformers' schedules read beside the steps.
void settle_curve(Draft& draft) {
  // Its mean of all steps takes the place of one, whatever the program's default is.
  if (draft.value("optimizer.name") == R"("schedule_free")")
    draft.set("optimizer.schedule", R"("constant")", "schedule_free has none");
  const std::string schedule = draft.value("optimizer.schedule");
  const auto take = [&](const char* fact, const char* of, const char* key, const char* usual) {
    const Fact* found = draft.fact(fact);
    const auto whole = found == nullptr ? std::nullopt : found->value.integer();
    const auto number = found == nullptr ? std::nullopt : found->value.number();
    const bool is_read = schedule == deck::to_toml(std::string(of));
    if (number && is_read)
      draft.set(key, whole ? deck::to_toml(*whole) : deck::to_toml(*number), found->name);
    else if (found != nullptr)
      draft.note(Kind::differs, with_value(*found), usual);
  };
  take("cycles_of_schedule", "cosine_with_restarts", "optimizer.num_cycles",
       "cosine falls over half of its period");
  take("power", "polynomial", "optimizer.power", "only polynomial has a power");
  take("timescale", "inverse_sqrt", "optimizer.timescale_steps", "only inverse_sqrt has one");
  // Theirs is a rate, by default one that is almost 0.
  const Fact* end = draft.fact("lr_end");
  const auto lr = Node{.kind = Node::Kind::text, .text = draft.value("optimizer.lr")}.number();
  if (end != nullptr && end->value.number() && lr && *lr > 0)
    draft.set("optimizer.min_lr_ratio",
              deck::to_toml(std::round(*end->value.number() / *lr * 1e12) / 1e12), end->name);
}

/// Of axolotl's groups the rates, as multiples of the usual one.
void settle_rates(Draft& draft) {
  const auto usual = Node{.kind = Node::Kind::text, .text = draft.value("optimizer.lr")}.number();
  const bool is_known = usual && *usual > 0;
  std::vector<std::string> patterns;
  std::vector<std::string> names;
  const auto add = [&](const std::string& pattern, double factor) {
    patterns.push_back(fmt::format("{}={:.6g}", pattern, factor));
  };
  if (const Fact* groups = draft.fact("lr_groups")) {
    names.push_back(groups->name);
    for (const Node& group : groups->value.items) {
      const Node* rate = group.find("lr");
      const Node* modules = group.find("modules");
      const auto lr = rate == nullptr ? std::nullopt : rate->number();
      if (!lr || modules == nullptr || !is_known) {
        draft.note(Kind::differs, fmt::format("{} = {}", groups->name, group.shown()),
                   "optimizer.lr_pattern has multiples of optimizer.lr");
        continue;
      }
      for (const std::string& name : names_in(*modules))
        add(name, *lr / *usual);
    }
  }
  constexpr const char* vocabulary = "(embed_tokens|lm_head)";
  const Fact* rate = draft.fact("embedding_lr");
  const auto scale = draft.number("embedding_lr_scale");
  if (rate != nullptr && rate->value.number() && is_known) {
    names.push_back(rate->name);
    add(vocabulary, *rate->value.number() / *usual);
  } else if (scale) {
    names.push_back(draft.fact("embedding_lr_scale")->name);
    add(vocabulary, *scale);
  }
  if (!patterns.empty())
    draft.set("optimizer.lr_pattern", deck::to_toml(patterns),
              fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace

void settle_schedule(Draft& draft) {
  settle_warmup(draft);
  settle_curve(draft);
  settle_rates(draft);
}

}  // namespace finetune::migrate
