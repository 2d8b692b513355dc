// SPDX-License-Identifier: Apache-2.0
#include "train/input/settings.hpp"

#include <algorithm>

#include "comm/nccl/nccl_settings.hpp"
#include "deck/exclusive.hpp"

namespace finetune::train {

using deck::Restart;

namespace {

/// data::Stream numbers the rows of a step within so many.
constexpr std::int64_t largest_batch = std::int64_t{1} << 20;

}  // namespace

void TrainSettings::bind(deck::Table& table) {
  table.text(
      {.name = "output",
       .restart = Restart::free,
       .sentence = "Folder for checkpoints, metrics.jsonl, event files, finetune.log and the "
                   "resolved deck; the same command continues what it finds there."},
      output);
  bind_length(table);
  bind_batch(table);
  bind_stops(table);
  bind_method(table);
  if (output.empty()) {
    table.problem("output", "train.output is empty", "checkpoints need a folder", "Name one.");
  }
  refuse_contradictions(table);
}

void TrainSettings::refuse_contradictions(deck::Table& table) const {
  const bool is_open = !activation_checkpointing;
  if (recomputed_blocks > 0 && (is_open || recomputation() == plan::ActivationCheckpointing::full))
    table.problem("recomputed_blocks",
                  "train.recomputed_blocks = " + std::to_string(recomputed_blocks) +
                      " contradicts train.activation_checkpointing = \"" +
                      (is_open ? "auto" : "full") + "\"",
                  is_open ? "auto chooses the number of blocks" : "full recomputes all blocks",
                  "Write \"none\" or \"selective\" there, or remove recomputed_blocks.");
  if (offloaded_blocks > 0 && is_open)
    table.problem("offloaded_blocks",
                  "train.offloaded_blocks = " + std::to_string(offloaded_blocks) +
                      " contradicts train.activation_checkpointing = \"auto\"",
                  "auto chooses the number of blocks",
                  "Write \"none\", \"selective\" or \"full\" there, or remove offloaded_blocks.");
  if (micro_batch > global_batch)
    table.problem("micro_batch",
                  "train.micro_batch = " + std::to_string(micro_batch) +
                      " exceeds train.global_batch = " + std::to_string(global_batch),
                  "a pass is a part of a step", "Lower micro_batch or raise global_batch.");
  if (micro_batch == 0 && determinism == plan::Determinism::topology)
    table.problem("micro_batch",
                  "train.micro_batch = \"auto\" contradicts train.determinism = \"topology\"",
                  "what fits differs between machines, and sums with it",
                  "Write a number: finetune plan says what auto would take.");
}

void TrainSettings::bind_length(deck::Table& table) {
  table.integer(
      {.name = "max_steps",
       .restart = Restart::free,
       .sentence =
           "Optimizer steps of the whole run; -1: as many as epochs gives; 0: train nothing and "
           "write a checkpoint of the model as it is.",
       .unit = "steps"},
      max_steps, {.min = -1});
  table.real({.name = "epochs",
              .restart = Restart::free,
              .sentence = "Passes over the training data, if max_steps is -1; 0.5 ends in the "
                          "middle of the first, at the next whole step."},
             epochs, {.above = 0});
}

void TrainSettings::bind_batch(deck::Table& table) {
  table.integer({.name = "global_batch",
                 .restart = Restart::fixed,
                 .sentence = "Sequences per optimizer step, over all ranks.",
                 .unit = "sequences"},
                global_batch, {.min = 1, .max = largest_batch});
  table.integer({.name = "micro_batch",
                 .restart = Restart::fixed,
                 .sentence = "Sequences per rank and pass; the number of accumulated passes "
                             "follows from it and the number of ranks. auto: what is fastest of "
                             "what fits; later starts keep it, on any ranks.",
                 .unit = "sequences"},
                micro_batch, {.min = 1, .zero_is_auto = true});
  table.integer({.name = "seed",
                 .restart = Restart::fixed,
                 .sentence = "Seed of the data order, dropout, noise and random weights."},
                seed, {.min = 0});
  table.real({.name = "neftune_alpha",
              .restart = Restart::fixed,
              .sentence = "NEFTune: in training the embedding of a sample of L tokens gets noise, "
                          "uniform within neftune_alpha / sqrt(L * D) of 0 for a model of D "
                          "channels; often 5. 0: none."},
             neftune_alpha, {.min = 0});
  table.real({.name = "ema_decay",
              .restart = Restart::fixed,
              .sentence = "Keep an exponential mean of the trained weights, in fp32, with this "
                          "decay per step, such as 0.999; without a bias to where it began. It is "
                          "validated beside the weights and exported by --ema. 0: none."},
             ema_decay, {.min = 0, .below = 1});
  table.texts(
      {.name = "frozen",
       .restart = Restart::fixed,
       .sentence = "Without an adapter: tensors that stay as they are. Regular expressions "
                   "for any part of their names, such as embed_tokens, or layers[.][0-7][.] "
                   "for the first eight layers."},
      frozen);
  table.texts(
      {.name = "trainable",
       .restart = Restart::fixed,
       .sentence = "The same of tensors that are trained, if not all are; frozen takes some "
                   "of these away."},
      trainable);
}

void TrainSettings::bind_stops(deck::Table& table) {
  table.integer({.name = "validate_steps",
                 .restart = Restart::free,
                 .sentence = "Validate every so many steps, in addition to before the first and "
                             "after the last; 0: only then.",
                 .unit = "steps"},
                validate_steps, {.min = 0});
  table.real({.name = "validate_epochs",
              .restart = Restart::free,
              .sentence = "The same in passes over the training data, such as 0.5 or 1; 0: as "
                          "validate_steps says.",
              .unit = "epochs"},
             validate_epochs, {.min = 0});
  table.integer({.name = "early_stopping_patience",
                 .restart = Restart::free,
                 .sentence = "End the run once checkpoint.best_by has not become better in so many "
                             "measurements in a row; 0: never.",
                 .unit = "measurements"},
                early_stopping_patience, {.min = 0});
  table.real({.name = "early_stopping_threshold",
              .restart = Restart::free,
              .sentence = "By how much it has to become better to count."},
             early_stopping_threshold, {.min = 0});
  table.integer(
      {.name = "stop_after_steps",
       .restart = Restart::free,
       .sentence =
           "Stop this start after so many steps with a checkpoint and exit code 75; 0: never.",
       .unit = "steps"},
      stop_after_steps, {.min = 0});
  table.real({.name = "max_seconds",
              .restart = Restart::free,
              .sentence = "Time this start may take, as given by the scheduler: the last "
                          "checkpoint begins early enough, and the exit code is 75; 0: no limit.",
              .unit = "s"},
             max_seconds, {.min = 0});
  table.boolean({.name = "stop_on_divergence",
                 .restart = Restart::free,
                 .sentence = "End the run with exit code 71, without another checkpoint, once a "
                             "step's loss is far above that of a guess and of the first step; "
                             "false: that is a warning."},
                stop_on_divergence);
  deck::refuse_both(table, "validate_steps", validate_steps > 0, "validate_epochs",
                    validate_epochs > 0);
}

plan::ActivationCheckpointing TrainSettings::recomputation() const {
  return activation_checkpointing.value_or(plan::ActivationCheckpointing::none);
}

void TrainSettings::bind_method(deck::Table& table) {
  table.choice(
      {.name = "determinism",
       .restart = Restart::fixed,
       .sentence = "off: sums may be taken in any order; run: the same ranks give bitwise "
                   "identical results; topology: any number of data-parallel ranks with the same "
                   "threads per rank does (gradients are summed in fixed point)."},
      determinism,
      {{"off", plan::Determinism::off},
       {"run", plan::Determinism::run},
       {"topology", plan::Determinism::topology}});
  bind_activations(table);
  table.boolean({.name = "check_replicas",
                 .restart = Restart::free,
                 .sentence = "Compare a hash of the weights of all copies of the model after each "
                             "step, and stop if they differ."},
                check_replicas);
  table.real({.name = "hang_timeout_s",
              .restart = Restart::free,
              .sentence = "End the job with exit code 74 and the names of the late ranks once a "
                          "rank has waited this long for others; 0: wait forever.",
              .unit = "s"},
             hang_timeout_s, {.min = 0.0});
  table.choice({.name = "device",
                .restart = Restart::free,
                .sentence = "What computes: auto: GPUs where there are any, and where they cannot "
                            "be used the run ends; gpu: GPUs or nothing; cpu: CPUs even where "
                            "there are GPUs."},
               device, device_choices());
  table.choice(
      {.name = "preflight",
       .restart = Restart::free,
       .sentence =
           "What is checked before the first step; a fault ends the start with exit code 69 and "
           "the node's name. quick: number of ranks and nodes, the same program and files "
           "everywhere, binding, memory, free space, clocks; full: in addition what finetune check "
           "measures (links, rates, disks, GPUs), in up to half a minute; off: nothing."},
      preflight,
      {{"off", PreflightLevel::off},
       {"quick", PreflightLevel::quick},
       {"full", PreflightLevel::full}});
}

void TrainSettings::bind_activations(deck::Table& table) {
  table.choice(
      {.name = "activation_checkpointing",
       .restart = Restart::free,
       .sentence = "What the backward pass recomputes instead of keeping it: nothing (none), norms "
                   "and activation functions (selective), or whole blocks (full); auto: the "
                   "fastest way that fits into memory, which may be whole blocks for some of "
                   "them, or host memory (offloaded_blocks)."},
      activation_checkpointing,
      {{"auto", std::nullopt},
       {"none", plan::ActivationCheckpointing::none},
       {"selective", plan::ActivationCheckpointing::selective},
       {"full", plan::ActivationCheckpointing::full}});
  table.integer({.name = "recomputed_blocks",
                 .restart = Restart::free,
                 .sentence = "With none or selective: so many blocks, the first ones, are "
                             "recomputed whole.",
                 .unit = "blocks"},
                recomputed_blocks, {.min = 0, .max = 100'000});
  table.integer({.name = "offloaded_blocks",
                 .restart = Restart::free,
                 .sentence = "On GPUs: so many of the blocks that are not recomputed, evenly "
                             "spread, have what they keep in pinned host memory between forward "
                             "and backward; with full so many blocks' inputs.",
                 .unit = "blocks"},
                offloaded_blocks, {.min = 0, .max = 100'000});
}

void MetricsSettings::bind(deck::Table& table) {
  table.integer({.name = "log_steps",
                 .restart = Restart::free,
                 .sentence = "Steps between two lines of the log where stdout is not a terminal.",
                 .unit = "steps"},
                log_steps, {.min = 1});
  table.integer(
      {.name = "answers",
       .restart = Restart::free,
       .sentence =
           "Print the model's answers to this many validation samples, before and after training."},
      answers, {.min = 0, .max = 1000});
  table.integer({.name = "answer_tokens",
                 .restart = Restart::free,
                 .sentence = "Longest of these answers.",
                 .unit = "tokens"},
                answer_tokens, {.min = 1});
  table.integer({.name = "norms_steps",
                 .restart = Restart::free,
                 .sentence = "Every so many steps, the norms of each layer's trained weights and "
                             "of their gradients, in metrics.jsonl and as histograms for "
                             "TensorBoard. 0: never.",
                 .unit = "steps"},
                norms_steps, {.min = 0});
  table.integer({.name = "noise_steps",
                 .restart = Restart::free,
                 .sentence = "Every so many steps, how much the gradients of micro-batches differ: "
                             "the gradient noise scale, about the batch from which on larger ones "
                             "gain little. Without parallel.tp, cp and ep. 0: never.",
                 .unit = "steps"},
                noise_steps, {.min = 0});
  table.real(
      {.name = "devices_every_s",
       .restart = Restart::free,
       .sentence = "How often a thread looks at GPUs (use, power, temperature, clocks, links, "
                   "errors), cores and memory, for metrics.jsonl and TensorBoard; slow GPUs "
                   "are warned of. 0: never.",
       .unit = "s"},
      devices_every_s, {.min = 0, .max = 3600});
  table.boolean({.name = "report",
                 .restart = Restart::free,
                 .sentence = "Write report.html into train.output, at each validation and at the "
                             "end: curves, times, memory, starts and data in one page."},
                report);
  table.boolean({.name = "tensorboard",
                 .restart = Restart::free,
                 .sentence = "Write event files for TensorBoard to train.output, in addition to "
                             "metrics.jsonl."},
                tensorboard);
}

void ProfileSettings::bind(deck::Table& table) {
  // So that sums of them are numbers, too.
  constexpr std::int64_t most_profiled = 1'000'000'000'000;
  const auto steps = [&](const char* name, const char* sentence, std::int64_t& value) {
    table.integer({.name = name, .restart = Restart::free, .sentence = sentence, .unit = "steps"},
                  value, {.min = 0, .max = most_profiled});
  };
  steps("wait", "Steps of each cycle that pass first, counted from the start.", wait);
  steps("warmup", "Steps that are recorded then, and forgotten.", warmup);
  steps("active",
        "Steps that are recorded then, and written: a file per rank for Perfetto. 0: none, and "
        "nothing is profiled.",
        active);
  table.integer({.name = "repeat",
                 .restart = Restart::free,
                 .sentence = "Cycles of wait, warmup and active. 0: to the end of the run.",
                 .unit = "cycles"},
                repeat, {.min = 0});
  table.reals(
      {.name = "ranks", .restart = Restart::free, .sentence = "Ranks that are recorded. []: all."},
      ranks, {.min = 0.0});
  for (const double rank : ranks) {
    if (rank == static_cast<double>(static_cast<std::int64_t>(rank))) continue;
    table.problem("ranks", "is not a list of ranks", "ranks are whole numbers",
                  "Write for example ranks = [0, 1].");
    break;
  }
  table.text({.name = "dir",
              .restart = Restart::free,
              .sentence = "Folder of these files; a relative one lies in train.output."},
             dir);
  table.boolean(
      {.name = "memory",
       .restart = Restart::free,
       .sentence = "Also what tensors were held as steps go on; on CPUs by what they are for."},
      memory);
  table.boolean({.name = "stacks",
                 .restart = Restart::free,
                 .sentence = "Each span says from where in the program it was reached."},
                stacks);
  table.choice({.name = "operators",
                .restart = Restart::free,
                .sentence = "Also libtorch's operators, and on GPUs their kernels. auto: on GPUs."},
               operators, {"auto", "on", "off"});
  if (dir.empty())
    table.problem("dir", "is empty", "files need a folder", "Leave it out, or name one.");
}

void NcclTable::bind(deck::Table& table) {
  table.boolean({.name = "override_environment",
                 .restart = Restart::free,
                 .sentence = "Where the deck and the environment both set a variable, the deck's "
                             "value is used; otherwise the environment's is, with a warning."},
                override_environment);
  table.boolean(
      {.name = "register_buffers",
       .restart = Restart::free,
       .sentence = "Register the buffers that weights are gathered into and gradients leave from "
                   "with NCCL (2.19 and later), which then sends them without a copy where the "
                   "network allows. libtorch's memory then does not grow in expandable segments."},
      register_buffers);
  const auto is_name = [](const std::string& key) {
    return std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
  };
  std::map<std::string, std::string> values;
  table.others(Restart::free, is_name, values);
  for (const auto& [key, value] : values) {
    const std::string name = comm::nccl_variable(key);
    if (variables.emplace(name, value).second) continue;
    table.problem(key, name + " is set twice", "in two spellings of the same variable",
                  "Keep one.");
  }
}

}  // namespace finetune::train
