// SPDX-License-Identifier: Apache-2.0
#include "migrate/detail/settle.hpp"

#include <fmt/format.h>

#include <cmath>

#include "deck/value.hpp"

namespace finetune::migrate {
namespace {

std::string shown(const Fact& fact) {
  return fmt::format("{} = {}", fact.name, fact.value.shown());
}

/// A folder is needed where others take a name on the hub.
void settle_model(Draft& draft) {
  if (!draft.has("model.path")) {
    draft.stop({}, "it names no model", "there is nothing to train", "model.path=FOLDER");
    return;
  }
  std::string model = draft.value("model.path");
  const bool is_name = model.find('/') == model.rfind('/') &&
                       model.find('/') != std::string::npos && !model.starts_with("\"/") &&
                       !model.starts_with("\".");
  std::erase(model, '"');
  if (is_name)
    draft.say(
        fmt::format("model.path is a folder: hf download {} --local-dir {} on a machine with "
                    "internet.",
                    model, model));
}

/// The keys that say how often: in steps, or in epochs.
struct Interval {
  const char *steps, *epochs;
};
constexpr Interval of_validation = {"train.validate_steps", "train.validate_epochs"};
constexpr Interval of_saves = {"checkpoint.save_steps", "checkpoint.save_epochs"};

bool has(const Draft& draft, const Interval& keys) {
  return draft.has(keys.steps) || draft.has(keys.epochs);
}

/// The first that is set stays; of the two keys, too.
void set_epochs(Draft& draft, const Interval& keys, double epochs, const std::string& comment) {
  // 0.1 * 3 is 0.3.
  const double written = std::round(epochs * 1e12) / 1e12;
  if (!has(draft, keys)) draft.set(keys.epochs, deck::to_toml(written), comment);
}

/// So many steps, or as transformers has it a part of all steps below 1.
void take_steps(Draft& draft, const Interval& keys, const Fact& fact) {
  const auto steps = fact.value.integer();
  const auto part = fact.value.number();
  const auto epochs = draft.number("epochs");
  if (steps && *steps > 0 && !has(draft, keys))
    draft.set(keys.steps, deck::to_toml(*steps), fact.name);
  else if (!steps && part && *part > 0 && *part < 1 && epochs && !draft.has("train.max_steps"))
    set_epochs(draft, keys, *part * *epochs, fmt::format("{} x {:g} epochs", shown(fact), *epochs));
  else if (!has(draft, keys))
    draft.note(Kind::differs, shown(fact), fmt::format("{} counts whole steps", keys.steps));
}

/// So many in each epoch.
void take_times(Draft& draft, const Interval& keys, const Fact& fact) {
  const auto times = fact.value.number();
  if (times && *times > 0)
    set_epochs(draft, keys, 1 / *times, shown(fact));
  else
    draft.note(Kind::differs, shown(fact), fmt::format("{} counts epochs", keys.epochs));
}

void settle_validation(Draft& draft) {
  const Fact* size = draft.fact("val_size");
  const auto part = draft.number("val_size");
  if (part && *part > 0 && *part < 1)
    draft.set("data.validation_fraction", deck::to_toml(*part), size->name);
  else if (part && *part >= 1)
    draft.note(Kind::differs, shown(*size),
               "held-out samples are a part of the data: data.validation_fraction");
  const bool validates = draft.has("data.validation_fraction") || draft.has("data.validation_path");
  // By epochs, others do not ask for the number of steps, which may have a default.
  const bool by_epochs = draft.text("eval_strategy") == "epoch";
  for (const char* name : {"eval_strategy", "eval_steps", "evals_per_epoch"}) {
    const Fact* fact = draft.fact(name);
    if (fact == nullptr || fact->value.is_off()) continue;
    if (by_epochs && name == std::string_view("eval_steps")) continue;
    if (!validates)
      draft.note(Kind::needless, shown(*fact), "there are no validation data");
    else if (name == std::string_view("evals_per_epoch"))
      take_times(draft, of_validation, *fact);
    else if (name == std::string_view("eval_steps"))
      take_steps(draft, of_validation, *fact);
    else if (fact->value.text == "epoch")
      set_epochs(draft, of_validation, 1, shown(*fact));
  }
}

/// Behind settle_validation: the loss has to be measured now and then.
void settle_early_stopping(Draft& draft) {
  const Fact* fact = draft.fact("early_stopping");
  const auto patience = draft.integer("early_stopping");
  if (fact == nullptr || fact->value.is_off()) return;
  if (patience && *patience > 0 && has(draft, of_validation))
    draft.set("train.early_stopping_patience", deck::to_toml(*patience), fact->name);
  else
    draft.note(Kind::differs, shown(*fact),
               "train.early_stopping_patience counts validations, of train.validate_steps or "
               "validate_epochs");
}

void settle_saves(Draft& draft) {
  const Fact* strategy = draft.fact("save_strategy");
  const std::string kind = strategy == nullptr ? "" : strategy->value.text;
  const Fact* steps = draft.fact("save_steps");
  if (kind == "epoch")
    set_epochs(draft, of_saves, 1, shown(*strategy));
  else if (strategy != nullptr && (kind == "best" || strategy->value.is_off())) {
    draft.set(of_saves.steps, "0", shown(*strategy));
    draft.note(Kind::differs, shown(*strategy),
               "a checkpoint is written at the end, and every checkpoint.save_minutes; "
               "checkpoint.keep_best keeps the best");
  } else if (steps != nullptr && !steps->value.is_off())
    take_steps(draft, of_saves, *steps);
  if (const Fact* fact = draft.fact("saves_per_epoch"); fact != nullptr && !fact->value.is_off())
    take_times(draft, of_saves, *fact);
  if (const auto every = draft.number("save_every_epochs"); every && *every > 0)
    set_epochs(draft, of_saves, *every, draft.fact("save_every_epochs")->name);
  if (const Fact* fact = draft.fact("resume"); fact != nullptr && !fact->value.boolean())
    draft.stop(fact->value, shown(*fact),
               "checkpoints of other programs are not continued: export its weights and name them "
               "in model.path",
               "checkpoint.resume=auto");
}

/// Keys that stand for themselves once they are understood.
void settle_rest(Draft& draft) {
  if (draft.is_on("use_cpu")) draft.set("train.device", R"("cpu")", draft.fact("use_cpu")->name);
  const Fact* log = draft.fact("log_steps");
  const auto steps = draft.integer("log_steps");
  if (steps && *steps > 0) draft.set("metrics.log_steps", deck::to_toml(*steps), log->name);
  if (log != nullptr && !steps)
    draft.note(Kind::differs, shown(*log), "metrics.log_steps counts whole steps");
  const Fact* betas = draft.fact("betas");
  if (betas == nullptr || betas->value.items.size() != 2) return;
  const char* keys[] = {"optimizer.beta1", "optimizer.beta2"};
  for (int i = 0; i < 2; ++i) {
    if (const auto value = betas->value.items[static_cast<std::size_t>(i)].number())
      draft.set(keys[i], deck::to_toml(*value), betas->name);
  }
}

/// What theirs say of AdamW, Adafactor does not read.
void settle_moments(Draft& draft) {
  if (draft.value("optimizer.name") != R"("adafactor")") return;
  for (const char* key : {"optimizer.beta1", "optimizer.beta2", "optimizer.eps"})
    if (!draft.is_given(key)) draft.drop(key);
}

/// Rates of their own within an optimizer that has one for all: its moments in 8 bits are the
/// lesser loss.
void settle_one_rate(Draft& draft) {
  const bool has_one_rate =
      draft.value("optimizer.name") == R"("adamw8bit")" && !draft.is_given("optimizer.name");
  for (const char* key : {"adapter.loraplus_lr_ratio", "adapter.loraplus_embedding_lr_ratio",
                          "optimizer.lr_pattern"}) {
    if (!has_one_rate || !draft.has(key)) continue;
    draft.drop("optimizer.name");
    draft.set("optimizer.name", R"("adamw")",
              fmt::format("adamw8bit has one learning rate for all, without {}", key));
    return;
  }
}

void settle_profile(Draft& draft) {
  if (!draft.is_on("profile")) return;
  const auto take = [&](const char* fact, const char* key) {
    if (const auto value = draft.integer(fact))
      draft.set(key, deck::to_toml(*value), draft.fact(fact)->name);
  };
  take("wait_steps", "profile.wait");
  take("warmup_of_profile", "profile.warmup");
  take("active_steps", "profile.active");
  take("num_cycles", "profile.repeat");
}

}  // namespace

void settle(const Source& source, Draft& draft) {
  settle_model(draft);
  settle_data(draft);
  settle_adapter(source, draft);
  settle_batch(draft);
  settle_machine(draft);
  settle_validation(draft);
  settle_early_stopping(draft);
  settle_saves(draft);
  settle_profile(draft);
  settle_schedule(draft);
  settle_rest(draft);
  for (const Default& each : source.defaults) {
    const bool is_replaced = each.key == of_saves.steps && draft.has(of_saves.epochs);
    if (!each.key.starts_with("adapter.") && !is_replaced)
      draft.set(std::string(each.key), std::string(each.value),
                fmt::format("the default of {}", source.title));
  }
  settle_moments(draft);
  settle_one_rate(draft);
}

}  // namespace finetune::migrate
