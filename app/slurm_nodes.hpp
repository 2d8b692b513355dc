#pragma once
// SPDX-License-Identifier: Apache-2.0
// What Slurm says of the nodes that a job may get.

#include <optional>
#include <string>

#include "plan/machine/machine.hpp"

namespace finetune::app {

enum class Gpus { wanted, of_no_use };

/// The format of `sinfo --exact --noheader` that read_sinfo takes.
inline constexpr const char* sinfo_format = "%P|%D|%c|%Z|%m|%l|%G";

/// The commonest nodes of a partition, the default one if `partition` is empty, of those with GPUs
/// if such are wanted and there are some. Rates stay 0: nobody has measured them. Nothing if `text`
/// has no line of that partition.
std::optional<plan::Machine> read_sinfo(const std::string& text, const std::string& partition,
                                        Gpus gpus);

/// The same of the Slurm that `sinfo` of the PATH knows; nothing without one.
/// Throws: ErrorKind::command_line if there is a Slurm without such a partition, or its name cannot
/// be one.
std::optional<plan::Machine> ask_slurm(const std::string& partition, Gpus gpus);

}  // namespace finetune::app
