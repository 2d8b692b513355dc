// SPDX-License-Identifier: Apache-2.0
// finetune lr-range: which learning rates are tried, and where the curve goes.
#include <CLI/CLI.hpp>

#include "options.hpp"

namespace finetune::app {

void add_lr_range(CLI::App& app, Arguments& arguments) {
  train::LrRange& range = arguments.lr_range;
  CLI::App* command = app.add_subcommand(
      "lr-range",
      "Find a learning rate: train the deck's model on its data, on the ranks of a job, while the "
      "learning rate rises from step to step; print the loss as a table and a curve, and what "
      "follows for optimizer.lr. Saves no checkpoint and leaves train.output alone.");
  command->add_option("deck", arguments.path, "The deck")->required();
  command->add_option("overrides", arguments.overrides, "table.key=value");
  command->add_option("--from", range.from, "The smallest learning rate; default: 1e-7")
      ->check(CLI::Range(1e-30, 1e6));
  command->add_option("--to", range.to, "The largest; default: 1")->check(CLI::Range(1e-30, 1e6));
  command->add_option("--steps", range.num_steps, "Steps from one to the other; default: 100")
      ->check(CLI::Range(10, 1'000'000));
  command
      ->add_option("--stop-factor", range.stop_factor,
                   "End once the smoothed loss is so many times its least; default: 4")
      ->check(CLI::Range(1.0, 1e30));
  command->add_option("-o,--out", arguments.second,
                      "Folder for lr_range.jsonl and lr_range.svg; default: train.output with "
                      "-lr-range behind its name");
  command->callback([&range] {
    if (range.from >= range.to) throw CLI::ValidationError("--from has to be smaller than --to");
  });
}

}  // namespace finetune::app
