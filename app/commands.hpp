#pragma once
// SPDX-License-Identifier: Apache-2.0
// The commands other than training; one file each. All but `check` run as one process without MPI.

#include <filesystem>

#include "cli.hpp"
#include "comm/environment.hpp"
#include "train/input/registry.hpp"

namespace finetune::app {

/// Runs the command that `arguments` name; not training, which needs ranks.
int run(const Arguments& arguments);

/// The same on the ranks of a job (needs_ranks). Collective on the environment's world.
int run(const comm::Environment& environment, const Arguments& arguments);

/// Whether the job is fit to train. Collective on the environment's world.
int run_check(const comm::Environment& environment, const Arguments& arguments,
              const train::Registry& registry);

/// `environment`: the ranks that share the model; null: this process has it alone. Collective on
/// the environment's world.
int run_generate(const comm::Environment* environment, const Arguments& arguments,
                 const train::Registry& registry);
int run_evaluate(const comm::Environment* environment, const Arguments& arguments,
                 const train::Registry& registry);

/// Each returns an exit code. Throws: core::Error.
int run_plan(const Arguments& arguments, const train::Registry& registry);
int run_import(const Arguments& arguments, const train::Registry& registry);
int run_tokenize(const Arguments& arguments, const train::Registry& registry);
int run_texts_plan(const Arguments& arguments, const train::Registry& registry);
int run_data_report(const Arguments& arguments, const train::Registry& registry);
int run_export(const Arguments& arguments, const train::Registry& registry);
int run_quantize(const Arguments& arguments, const train::Registry& registry);
/// Tells all that is wrong with the folder of a model. -> Exit code.
int verify_model(const std::filesystem::path& folder, const train::Registry& registry);
int run_verify(const Arguments& arguments, const train::Registry& registry);
int run_report(const Arguments& arguments);
/// The exit code says how the run is (report::exit_code).
int run_watch(const Arguments& arguments);
int run_trace(const Arguments& arguments);

/// "80GiB", "5GB", "512 MiB" or a plain number of bytes. Throws: ErrorKind::command_line.
std::int64_t parse_bytes(const std::string& text);

}  // namespace finetune::app
