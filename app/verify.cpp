// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.hpp"

#include <fmt/format.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::app {

int run_verify(const Arguments& arguments) {
  const checkpoint::Verification result = checkpoint::verify(arguments.path);
  for (const std::string& problem : result.problems)
    log::error(problem);
  if (!result.problems.empty()) return static_cast<int>(core::ErrorKind::input);
  log::info(fmt::format("{}: good: {} checkpoint{}, {} tensors, {} compared with their checksums",
                        arguments.path, result.num_checkpoints,
                        result.num_checkpoints == 1 ? "" : "s", result.num_tensors,
                        core::human_bytes(result.bytes)));
  return core::exit_done;
}

}  // namespace finetune::app
