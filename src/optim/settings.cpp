// SPDX-License-Identifier: Apache-2.0
#include "optim/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "deck/exclusive.hpp"
#include "deck/value.hpp"

namespace finetune::optim {
namespace {

/// Kinds that say the same of a key.
struct Readers {
  const OptimizerKey* key;
  std::vector<std::string> names;
};

std::vector<Readers> readers_of(std::string_view key, const std::vector<Kind>& kinds) {
  std::vector<Readers> all;
  for (const Kind& kind : kinds) {
    for (const OptimizerKey& own : kind.keys) {
      if (own.name != key) continue;
      const auto same = std::ranges::find_if(all, [&](const Readers& other) {
        return other.key->sentence == own.sentence && other.key->default_value == own.default_value;
      });
      if (same == all.end())
        all.push_back({&own, {kind.name()}});
      else
        same->names.push_back(kind.name());
    }
  }
  return all;
}

/// What each kind says of the key; which ones, if it is not all of them or not the same.
std::string sentence_of(const std::vector<Readers>& readers, std::size_t num_kinds) {
  const OptimizerKey& first = *readers.front().key;
  if (readers.front().names.size() == num_kinds) return fmt::format("{}.", first.sentence);
  std::vector<std::string> parts;
  for (const auto& [key, names] : readers)
    parts.push_back(fmt::format("{} ({}{})", key->sentence, fmt::join(names, ", "),
                                key->default_value == first.default_value
                                    ? ""
                                    : fmt::format("; default {}", key->default_value)));
  return fmt::format("{}.", fmt::join(parts, ". "));
}

std::vector<std::string> names_of(const std::vector<Kind>& kinds) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds)
    names.push_back(kind.name());
  return names;
}

std::string sentence_of(const std::vector<Kind>& kinds) {
  std::vector<std::string> parts;
  for (const Kind& kind : kinds)
    parts.push_back(fmt::format("{}: {}", kind.name(), kind.sentence));
  return fmt::format("{}.", fmt::join(parts, "; "));
}

/// Default and value are those of the chosen optimizer, if it reads the key.
void bind_number(deck::Table& table, const OptimizerKey& key, const std::vector<Kind>& kinds,
                 OptimizerSettings& settings) {
  const std::vector<Readers> readers = readers_of(key.name, kinds);
  const auto chosen = std::ranges::find_if(readers, [&](const Readers& those) {
    return std::ranges::find(those.names, settings.name) != those.names.end();
  });
  const bool is_read = chosen != readers.end();
  const double usual = (is_read ? *chosen : readers.front()).key->default_value;
  double value = usual;
  const std::string sentence = sentence_of(readers, kinds.size());
  table.real({.name = key.name, .restart = deck::Restart::fixed, .sentence = sentence}, value,
             key.range);
  if (is_read) settings.numbers[std::string(key.name)] = value;
  if (!is_read && value != usual)
    table.problem(key.name,
                  fmt::format("optimizer.{} is given, but optimizer.name = \"{}\" does not read it",
                              key.name, settings.name),
                  "nothing would follow from it", "Remove it.");
}

void bind_numbers(deck::Table& table, const std::vector<Kind>& kinds, OptimizerSettings& settings) {
  std::vector<std::string_view> bound;
  for (const Kind& any : kinds) {
    for (const OptimizerKey& key : any.keys) {
      if (std::ranges::find(bound, key.name) != bound.end()) continue;
      bound.push_back(key.name);
      bind_number(table, key, kinds, settings);
    }
  }
}

/// What one schedule alone reads.
void bind_shape(deck::Table& table, OptimizerSettings& settings) {
  using deck::Restart;
  const OptimizerSettings usual;
  table.integer({.name = "num_cycles",
                 .restart = Restart::fixed,
                 .sentence = "How often cosine_with_restarts falls, each time from lr.",
                 .unit = "cycles"},
                settings.num_cycles, {.min = 1});
  table.real({.name = "power",
              .restart = Restart::fixed,
              .sentence = "Of polynomial: 1 is linear, 2 falls faster at first."},
             settings.power, {.above = 0});
  table.integer({.name = "timescale_steps",
                 .restart = Restart::fixed,
                 .sentence = "So many steps behind warm-up inverse_sqrt is at lr / sqrt(2); 0: as "
                             "many as warm-up has, or 10,000 without.",
                 .unit = "steps"},
                settings.timescale_steps, {.min = 0});
  const auto refuse_unread = [&](const char* key, bool is_set, LrSchedule by, const char* name) {
    if (!is_set || settings.schedule == by) return;
    table.problem(
        key, fmt::format("optimizer.{} is given, but optimizer.schedule does not read it", key),
        fmt::format("\"{}\" alone does", name),
        fmt::format("Set optimizer.schedule = \"{}\", or remove the key.", name));
  };
  refuse_unread("num_cycles", settings.num_cycles != usual.num_cycles,
                LrSchedule::cosine_with_restarts, "cosine_with_restarts");
  refuse_unread("power", settings.power != usual.power, LrSchedule::polynomial, "polynomial");
  refuse_unread("timescale_steps", settings.timescale_steps != usual.timescale_steps,
                LrSchedule::inverse_sqrt, "inverse_sqrt");
}

void bind_schedule(deck::Table& table, OptimizerSettings& settings) {
  using deck::Restart;
  table.real({.name = "lr", .restart = Restart::fixed, .sentence = "Learning rate after warm-up."},
             settings.lr, {.min = 0});
  table.texts({.name = "lr_pattern",
               .restart = Restart::fixed,
               .sentence = "Other learning rates for some tensors, as multiples of lr: "
                           "\"PATTERN=FACTOR\", such as \"embed_tokens=0.1\". The pattern is a "
                           "regular expression for any part of a name; the first that matches "
                           "counts."},
              settings.lr_pattern);
  table.choice({.name = "schedule",
                .restart = Restart::fixed,
                .sentence = "How the learning rate falls from lr after warm-up to lr * "
                            "min_lr_ratio after the last step. cosine_with_restarts: num_cycles "
                            "times; polynomial: as a power of what is left; inverse_sqrt: as 1 / "
                            "sqrt(step), whatever the number of steps; wsd: it stays, and falls "
                            "linearly over the last decay_ratio of all steps."},
               settings.schedule,
               {{"cosine", LrSchedule::cosine},
                {"cosine_with_restarts", LrSchedule::cosine_with_restarts},
                {"linear", LrSchedule::linear},
                {"polynomial", LrSchedule::polynomial},
                {"inverse_sqrt", LrSchedule::inverse_sqrt},
                {"constant", LrSchedule::constant},
                {"wsd", LrSchedule::wsd}});
  table.real(
      {.name = "min_lr_ratio",
       .restart = Restart::fixed,
       .sentence = "Learning rate after the last step, as a fraction of lr (not constant); of "
                   "inverse_sqrt the least there is."},
      settings.min_lr_ratio, {.min = 0, .max = 1});
  table.real(
      {.name = "decay_ratio",
       .restart = Restart::fixed,
       .sentence = "Fraction of all steps (rounded up) over which wsd lets the learning rate "
                   "fall."},
      settings.decay_ratio, {.max = 1, .above = 0});
  bind_shape(table, settings);
  table.integer({.name = "warmup_steps",
                 .restart = Restart::fixed,
                 .sentence = "Steps over which the learning rate rises linearly to lr.",
                 .unit = "steps"},
                settings.warmup_steps, {.min = 0});
  table.real(
      {.name = "warmup_ratio",
       .restart = Restart::fixed,
       .sentence = "The same as a fraction of all steps (rounded up); used if warmup_steps is 0."},
      settings.warmup_ratio, {.min = 0, .max = 1});
}

/// Of an optimizer that has none.
void refuse_schedule(deck::Table& table, const OptimizerSettings& settings) {
  if (settings.schedule != LrSchedule::constant)
    table.problem("schedule",
                  fmt::format("optimizer.name = \"{}\" has no other schedule than \"constant\"",
                              settings.name),
                  "the mean that it evaluates takes the place of one", "Remove the key.");
  if (settings.warmup_ratio > 0)
    table.problem("warmup_ratio",
                  fmt::format("optimizer.name = \"{}\" knows no number of steps", settings.name),
                  "its mean is weighted by the warm-up", "Give optimizer.warmup_steps instead.");
  if (settings.kind->evaluated && !std::isfinite(settings.kind->evaluated->factor(settings)))
    table.problem("beta1",
                  fmt::format("optimizer.beta1 = 0 leaves optimizer.name = \"{}\" no mean to "
                              "evaluate",
                              settings.name),
                  "gradients are taken beta1 of the way to it", "Use 0.9.");
}

}  // namespace

std::string name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::stochastic:
      return "stochastic";
    case Rounding::nearest:
      return "nearest";
  }
  return "";
}

double OptimizerSettings::number(const OptimizerKey& key) const {
  const auto found = numbers.find(key.name);
  return found == numbers.end() ? key.default_value : found->second;
}

void OptimizerSettings::bind(deck::Table& table, const std::vector<Kind>& kinds) {
  using deck::Restart;
  const std::string about_kinds = sentence_of(kinds);
  table.choice({.name = "name", .restart = Restart::fixed, .sentence = about_kinds}, name,
               names_of(kinds));
  kind = find_kind(kinds, name);
  const bool has_schedule = kind == nullptr || kind->has_schedule;
  if (!has_schedule) schedule = LrSchedule::constant;
  bind_schedule(table, *this);
  bind_numbers(table, kinds, *this);
  if (!has_schedule) refuse_schedule(table, *this);
  table.real(
      {.name = "weight_decay",
       .restart = Restart::fixed,
       .sentence =
           "Decoupled weight decay of tensors with two or more dims; norms and biases have none."},
      weight_decay, {.min = 0});
  table.texts({.name = "weight_decay_exclude",
               .restart = Restart::fixed,
               .sentence = "Tensors that have no weight decay either: regular expressions for any "
                           "part of their names, such as embed_tokens."},
              weight_decay_exclude);
  table.real({.name = "max_grad_norm",
              .restart = Restart::fixed,
              .sentence = "Gradients are scaled down to this global norm; 0 turns clipping off."},
             max_grad_norm, {.min = 0});
  table.choice({.name = "rounding",
                .restart = Restart::free,
                .sentence = "How weights and moments that are kept in bfloat16 (precision.mode = "
                            "\"bf16-true\") are rounded after each step. stochastic: up or down at "
                            "random, so that their mean is exact and small updates are not lost; "
                            "nearest: an update below half of a weight's last digit changes "
                            "nothing."},
               rounding, {{"stochastic", Rounding::stochastic}, {"nearest", Rounding::nearest}});
  table.boolean({.name = "offload",
                 .restart = Restart::free,
                 .sentence = "If ranks compute on GPUs: keep master weights and moments in host "
                             "memory and update them there."},
                offload);
  table.boolean(
      {.name = "in_backward",
       .restart = Restart::free,
       .sentence = "Update each block as soon as its gradient is complete, while backward "
                   "goes on: gradients of a few blocks are in memory, not of all. The "
                   "same numbers, with one pass per step and without clipping."},
      in_backward);
  if (in_backward && max_grad_norm > 0)
    table.problem("in_backward",
                  "optimizer.in_backward = true contradicts optimizer.max_grad_norm = " +
                      deck::to_toml(max_grad_norm),
                  "the norm of all gradients is known when the first blocks are updated already",
                  "Set max_grad_norm = 0, or in_backward = false.");
  if (in_backward && offload)
    table.problem("in_backward",
                  "optimizer.in_backward = true contradicts optimizer.offload = true",
                  "updates in the host's memory follow the backward pass", "Remove one of them.");
  deck::refuse_both(table, "warmup_steps", warmup_steps > 0, "warmup_ratio", warmup_ratio > 0);
}

}  // namespace finetune::optim
