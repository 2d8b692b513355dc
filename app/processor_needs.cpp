// SPDX-License-Identifier: Apache-2.0
// Compiled with the flags of everything else, so that it sees what they allow.
#include "processor_needs.hpp"

#include "core/processor_rows.hpp"

namespace finetune::app {

constinit const core::ProcessorNeeds processor_needs{core::instructions_compiled_for(),
                                                     FINETUNE_ARCH_TEXT};

}  // namespace finetune::app
