#pragma once
// SPDX-License-Identifier: Apache-2.0
// What this program was built for.

#include "core/processor.hpp"

namespace finetune::app {

/// Known when it is linked: reading it executes nothing.
extern const core::ProcessorNeeds processor_needs;

}  // namespace finetune::app
