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
/// differ. A start that goes on in train.output on the same ranks takes the mesh of the start
/// before, as long as it fits: another would add gradients in another order. That holds where the
/// plan chose then what is open now, and the deck states the rest as it was. A key that the deck
/// stated and states no longer is the plan's to choose, and with it whatever else is open: the mesh
/// that was chosen belongs to what it was chosen for. What cannot be planned stays open; whoever
/// plans it next says why. Collective on the environment's world. Throws:
/// AgreedError of ErrorKind::deck for a batch that no step would end with, or of
/// ErrorKind::command_line for an unknown parallel.machine.
void settle_choices(const comm::Environment& environment, const comm::Device& device, Input& input);

/// The mesh of this start and what of it the plan chose, for later starts in the folder.
core::Json describe_choice(const plan::Mesh& mesh, const plan::Ranks& ranks,
                           const ChosenMesh& chosen);

}  // namespace finetune::train
