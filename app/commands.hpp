#pragma once
// SPDX-License-Identifier: Apache-2.0
// The commands besides training; one file each. They run as one process without MPI.

#include "cli.hpp"
#include "train/registry.hpp"

namespace finetune::app {

/// Runs the command that `arguments` name; not training, which needs ranks.
int run(const Arguments& arguments);

/// Each returns an exit code. Throws: core::Error.
int run_plan(const Arguments& arguments, const train::Registry& registry);
int run_tokenize(const Arguments& arguments, const train::Registry& registry);
int run_data_report(const Arguments& arguments, const train::Registry& registry);
int run_generate(const Arguments& arguments, const train::Registry& registry);
int run_export(const Arguments& arguments, const train::Registry& registry);
int run_verify(const Arguments& arguments);

/// "80GiB", "5GB", "512 MiB" or a plain number of bytes. Throws: ErrorKind::command_line.
std::int64_t parse_bytes(const std::string& text);

}  // namespace finetune::app
