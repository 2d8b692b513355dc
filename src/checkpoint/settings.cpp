// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/settings.hpp"

#include <fmt/format.h>

#include "deck/exclusive.hpp"
#include "deck/table.hpp"

namespace finetune::checkpoint {

using deck::Restart;

void CheckpointSettings::bind(deck::Table& table) {
  bind_when(table);
  bind_retention(table);
  bind_how(table);
  bind_local_level(table);
  bind_resume(table);
}

void CheckpointSettings::bind_when(deck::Table& table) {
  table.integer({.name = "save_steps",
                 .restart = Restart::free,
                 .sentence = "Save every so many steps, and at the end; 0: at the end only.",
                 .unit = "steps"},
                save_steps, {.min = 0});
  table.real({.name = "save_epochs",
              .restart = Restart::free,
              .sentence = "The same in passes over the training data, such as 0.5 or 1; 0: as "
                          "save_steps says.",
              .unit = "epochs"},
             save_epochs, {.min = 0});
  table.real({.name = "save_minutes",
              .restart = Restart::free,
              .sentence = "Save whenever this much time has passed since the last save; 0: never.",
              .unit = "min"},
             save_minutes, {.min = 0});
  table.boolean({.name = "probe",
                 .restart = Restart::free,
                 .sentence = "Save after the first step of a start, and end the run if that fails: "
                             "proves space, path and speed before the hours are spent."},
                probe);
  deck::refuse_both(table, "save_steps", save_steps > 0, "save_epochs", save_epochs > 0);
}

void CheckpointSettings::bind_retention(deck::Table& table) {
  table.integer({.name = "save_total_limit",
                 .restart = Restart::free,
                 .sentence = "How many checkpoints to keep; older ones are removed once a newer "
                             "one is safely on disk."},
                save_total_limit, {.min = 1});
  table.integer({.name = "keep_every",
                 .restart = Restart::free,
                 .sentence = "In addition keep those of every so many steps for good; 0: none.",
                 .unit = "steps"},
                keep_every, {.min = 0});
  table.integer(
      {.name = "keep_best",
       .restart = Restart::free,
       .sentence = "In addition keep this many that are best by best_by; it is known of a "
                   "checkpoint that was saved right after it was measured."},
      keep_best, {.min = 0});
  table.text(
      {.name = "best_by",
       .restart = Restart::free,
       .sentence = "What keep_best, train.early_stopping_patience and finetune export --best "
                   "go by: \"validation_loss\", \"exact_match\" (of validation samples), or "
                   "\"TASK/METRIC\" of a task in evaluate.tasks."},
      best_by);
}

void CheckpointSettings::bind_how(deck::Table& table) {
  table.choice(
      {.name = "files",
       .restart = Restart::free,
       .sentence = "One HDF5 file per node, or one per rank. Any number of ranks can read both."},
      files, {{"node", Files::node}, {"rank", Files::rank}});
  table.choice(
      {.name = "access",
       .restart = Restart::free,
       .sentence =
           "Who may read checkpoints and metrics: only their owner, the group, or everybody."},
      access, {{"owner", Access::owner}, {"group", Access::group}, {"all", Access::all}});
  table.boolean(
      {.name = "async",
       .restart = Restart::free,
       .sentence = "Copy weights and moments to host memory and write them while training "
                   "continues; false: training waits, and that memory is not needed."},
      is_async);
  table.choice({.name = "when_busy",
                .restart = Restart::free,
                .sentence = "If a save is due while the last one is still being written: wait for "
                            "it, or skip the new one."},
               when_busy, {{"wait", WhenBusy::wait}, {"skip", WhenBusy::skip}});
  table.choice({.name = "on_error",
                .restart = Restart::free,
                .sentence = "If a save fails: continue training with the older checkpoint (until "
                            "three in a row have failed), or stop."},
               on_error, {{"continue", OnError::go_on}, {"stop", OnError::stop}});
  table.boolean({.name = "read_back",
                 .restart = Restart::free,
                 .sentence = "Read every byte back and compare checksums before a checkpoint "
                             "counts and older ones are removed."},
                read_back);
}

void CheckpointSettings::bind_local_level(deck::Table& table) {
  table.text({.name = "local_dir",
              .restart = Restart::free,
              .sentence = "Folder on a disk of each node for checkpoints in between; every node "
                          "also keeps its neighbour's part. Empty: none."},
             local_dir);
  table.integer({.name = "local_steps",
                 .restart = Restart::free,
                 .sentence = "Save to local_dir every so many steps; 0: never.",
                 .unit = "steps"},
                local_steps, {.min = 0});
  table.real({.name = "local_minutes",
              .restart = Restart::free,
              .sentence = "Save to local_dir whenever this much time has passed; 0: never.",
              .unit = "min"},
             local_minutes, {.min = 0});
  const bool has_interval = local_steps > 0 || local_minutes > 0;
  if (has_local_level() && !has_interval) {
    table.problem("local_dir", "checkpoint.local_dir is set without an interval",
                  "nothing would be saved there",
                  "Set checkpoint.local_minutes or checkpoint.local_steps.");
  }
  if (!has_local_level() && has_interval) {
    table.problem(local_steps > 0 ? "local_steps" : "local_minutes",
                  "checkpoint.local_dir is not set", "an interval alone saves nothing",
                  "Name a folder on a disk of the node, for example /tmp.");
  }
}

void CheckpointSettings::bind_resume(deck::Table& table) {
  table.text(
      {.name = "resume",
       .restart = Restart::free,
       .sentence = "\"auto\" continues from the newest good checkpoint of the branch written "
                   "last. \"never\" starts from scratch and \"step-0000000200\" goes back to "
                   "that one: what is newer moves to a folder branch-1, and the same value "
                   "submitted again continues the new branch; a number behind it "
                   "(\"never#2\") goes back once more."},
      resume);
  table.integer(
      {.name = "max_starts",
       .restart = Restart::free,
       .sentence = "Refuse to start (exit code 79) after this many starts of the same deck from "
                   "the same step have ended without a new checkpoint; 0: never."},
      max_starts, {.min = 0});
  const std::string_view base = without_number(resume);
  if (resume != "auto" && base != "never" && !step_of(base)) {
    table.problem("resume",
                  fmt::format("checkpoint.resume = \"{}\" is not a checkpoint's name", resume),
                  "they are called step-0000000200 and so on",
                  "Use \"auto\", \"never\" or the name of a folder.");
  }
}

}  // namespace finetune::checkpoint
