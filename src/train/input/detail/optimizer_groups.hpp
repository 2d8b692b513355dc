#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors that the optimizer treats in their own way, by their names.

#include "train/input/input.hpp"

namespace finetune::train {

/// Multiplies learning rates by what optimizer.lr_pattern says, the first pattern that a tensor's
/// name matches, and takes weight decay from what optimizer.weight_decay_exclude names. To be
/// called with the adapter's rows in the table. Throws: ErrorKind::deck for patterns that name
/// nothing that is trained, for optimizers with one learning rate, and for matrices that are larger
/// than an optimizer takes.
void set_optimizer_groups(Input& input);

}  // namespace finetune::train
