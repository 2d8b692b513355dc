// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/settings.hpp"

#include <fmt/format.h>

#include "deck/table.hpp"

namespace finetune::checkpoint {

void Settings::bind(deck::Table& table) {
  using deck::Restart;
  table.integer({.name = "save_steps",
                 .restart = Restart::free,
                 .sentence = "Save every so many steps, and at the end; 0 = at the end only.",
                 .unit = "steps"},
                save_steps, {.min = 0});
  table.integer({.name = "save_total_limit",
                 .restart = Restart::free,
                 .sentence = "How many checkpoints to keep; older ones go after a newer one is "
                             "safely on disk."},
                save_total_limit, {.min = 1});
  table.choice({.name = "files",
                .restart = Restart::free,
                .sentence = "One HDF5 file a node, or one a rank. Any number of ranks reads both."},
               files, {"node", "rank"});
  table.text(
      {.name = "resume",
       .restart = Restart::free,
       .sentence = "\"auto\" goes on from the newest good checkpoint, \"never\" starts anew, "
                   "\"step-0000000200\" goes on from that one."},
      resume);
  if (resume != "auto" && resume != "never" && !step_of(resume)) {
    table.problem("resume",
                  fmt::format("checkpoint.resume = \"{}\" is not a checkpoint's name", resume),
                  "they are called step-0000000200 and so on",
                  "Use \"auto\", \"never\" or the name of a folder.");
  }
}

}  // namespace finetune::checkpoint
