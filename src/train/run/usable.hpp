#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a deck names, looked at before anything is computed: mistakes that cost a start each where
// they are found one after the other.

#include "train/input/input.hpp"

namespace finetune::train {

/// For `read`: the model's files hold what their headers promise, and the tensors of config.json.
/// Where no safetensors file is there, as for a plan from config.json alone, nothing is asked.
void check_weights(const comm::Communicator& world, const Input& input, bool is_known,
                   core::Problems& problems);

/// For `read`: all that a start needs. Weights, which have to be there unless they are drawn or in
/// a checkpoint; data; tasks; the output folder; and, only if something is wrong with these, the
/// tokenizer, which takes a second and is read soon anyway. Not `is_of_a_run`: another command,
/// which has an output of its own, asks no tasks and goes on from no checkpoint.
AlsoCheck checks_of_start(const Registry& registry, bool is_of_a_run);

}  // namespace finetune::train
