#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether the learning rate of a restart goes on where it was.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "optim/settings.hpp"

namespace finetune::train {

/// The learning rate that metrics.jsonl has of `step` (from 1), of the newest row if there are
/// several; nothing without one in the file's last MiB.
std::optional<double> lr_of_step(const std::filesystem::path& metrics, std::int64_t step);

/// Most schedules follow the length of the run: one that becomes longer than it was
/// (train.max_steps, train.epochs, more data) has another rate at the step where it stopped. What
/// to say of it where the next step, after `steps_done` of now `num_steps`, has a rate that differs
/// from `lr_before`, the last one's, by more than a tenth, and the schedule does not mean it so.
std::optional<std::string> advice_on_lr_jump(const optim::OptimizerSettings& settings,
                                             std::int64_t num_steps, std::int64_t steps_done,
                                             double lr_before);

}  // namespace finetune::train
