#pragma once
// SPDX-License-Identifier: Apache-2.0
// Settles, on the ranks of a job, what the deck leaves to the plan.

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// Writes into `input` what parallel.sharding = "AUTO", parallel.tp, cp and ep = 0,
/// train.micro_batch = "auto" and train.activation_checkpointing = "auto" mean on these ranks
/// (plan::choose), and logs it. The
/// root decides, with the least memory that any rank has, and tells the others: no two ranks can
/// differ. A start that goes on in train.output on the same ranks takes the mesh of the start
/// before, as long as it fits: another would add gradients in another order. That holds where the
/// plan chose then what is open now, and the deck states the rest as it was. A key that the deck
/// stated and states no longer is the plan's to choose, and with it whatever else is open: the mesh
/// that was chosen belongs to what it was chosen for. The micro-batch that was chosen is that of
/// the run, on whatever ranks it goes on. What cannot be planned stays open; whoever
/// plans it next says why. Collective on the environment's world. Throws:
/// AgreedError of ErrorKind::deck for a batch that no step would end with, or of
/// ErrorKind::command_line for an unknown parallel.machine.
void settle_choices(const comm::Environment& environment, const comm::Device& device, Input& input);

/// Of a rank in bf16, by the data sheet of parallel.machine: what MFU is measured against. 0 where
/// the deck names none that computes as these ranks do, or that does not say; a machine
/// that cannot be read is a warning.
double peak_flops(const Input& input, bool on_gpu);

/// Mesh and micro-batch of this start and what of them the plan chose, for later starts in the
/// folder.
core::Json describe_choice(const plan::Plan& plan, const ChosenKeys& chosen);

}  // namespace finetune::train
