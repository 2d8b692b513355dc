// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify/verify.hpp"

#include <fmt/format.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "weights/folder.hpp"

namespace finetune::app {
namespace {

const char* plural(std::int64_t count) {
  return count == 1 ? "" : "s";
}

/// One line: step, size, good or bad, validation loss, score.
void print(const checkpoint::VerifiedCheckpoint& checkpoint) {
  std::string line =
      fmt::format("step {:>10}  {:>10}  ", checkpoint.step, core::human_bytes(checkpoint.bytes));
  line += checkpoint.num_problems == 0 ? "good"
                                       : fmt::format("bad: {} problem{}", checkpoint.num_problems,
                                                     plural(checkpoint.num_problems));
  if (checkpoint.validation_loss)
    line += fmt::format("  validation loss {:.6g}", *checkpoint.validation_loss);
  if (checkpoint.score)
    line += fmt::format("  {} {:.6g}", checkpoint.score->name, checkpoint.score->value);
  if (!checkpoint.other_branch.empty())
    line += fmt::format("  (another branch: {})", checkpoint.other_branch);
  log::info(line);
}

/// One line a kind: what its tensors hold together.
void print(const checkpoint::KindSummary& kind) {
  log::info(fmt::format("{:<12} {:>6} tensor{:1}  {:>10}  L2 norm {:.6g}", kind.kind,
                        kind.num_tensors, plural(kind.num_tensors), core::human_bytes(kind.bytes),
                        kind.norm));
}

}  // namespace

int run_verify(const Arguments& arguments, const train::Registry& registry) {
  if (weights::is_in_folder(arguments.path, "config.json"))
    return verify_model(arguments.path, registry);
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "tokenizer.json",
                           "generation_config.json"})
    if (weights::is_in_folder(arguments.path, name))
      core::fail(core::ErrorKind::input,
                 {arguments.path, "has no config.json", fmt::format("with {} it is a model", name),
                  "Copy or download what is missing, with the hub's own tool as README.md says."});
  const checkpoint::Verification result =
      checkpoint::verify(arguments.path, optim::unsigned_states(registry.optimizers));
  for (const std::string& problem : result.problems)
    log::error(problem);
  for (const auto& each : result.checkpoints)
    print(each);
  if (result.checkpoints.size() == 1)
    for (const auto& kind : result.checkpoints.front().kinds)
      print(kind);
  if (!result.other_branches.empty())
    log::info(fmt::format("other branches in {}: {}", arguments.path, result.other_branches));
  if (!result.problems.empty()) return static_cast<int>(core::ErrorKind::input);
  log::info(fmt::format("{}: good: {} checkpoint{}, {} tensors, {} compared with their checksums",
                        arguments.path, result.checkpoints.size(),
                        plural(std::ssize(result.checkpoints)), result.num_tensors,
                        core::human_bytes(result.bytes)));
  return core::exit_done;
}

}  // namespace finetune::app
