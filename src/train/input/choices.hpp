#pragma once
// SPDX-License-Identifier: Apache-2.0
// Settles, on the ranks of a job, what the deck leaves to the plan.

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// Writes into `input` what parallel.sharding = "AUTO", parallel.tp, cp and ep = 0 and
/// train.activation_checkpointing = "auto" mean on these ranks (plan::choose), and logs it. The
/// root decides, with the least memory that any rank has, and tells the others: no two ranks can
/// differ. A start that goes on in train.output on the same ranks takes the strategy of the start
/// before, as long as it fits: another would add gradients in another order. What cannot be planned
/// stays open; whoever plans it next says why. Collective on the environment's world. Throws:
/// AgreedError of ErrorKind::deck for a batch that no step would end with, or of
/// ErrorKind::command_line for an unknown parallel.machine.
void settle_choices(const comm::Environment& environment, const comm::Device& device, Input& input);

/// What the mesh became where the deck leaves it open, for later starts in the folder.
core::Json describe_choice(const plan::Mesh& mesh, const plan::Ranks& ranks);

}  // namespace finetune::train
