#pragma once
// SPDX-License-Identifier: Apache-2.0
// The options of commands that have many: each adds its subcommand to the command line.

#include "cli.hpp"

namespace CLI {
class App;
}

namespace finetune::app {

void add_plan(CLI::App& app, Arguments& arguments);
void add_evaluate(CLI::App& app, Arguments& arguments);
void add_generate(CLI::App& app, Arguments& arguments);
void add_lr_range(CLI::App& app, Arguments& arguments);

}  // namespace finetune::app
