#pragma once
// SPDX-License-Identifier: Apache-2.0
// The environment variables that NCCL reads: it ignores all others without a word.

#include <string>
#include <vector>

namespace finetune::comm {

/// "NCCL_ALGO" ..., in alphabetical order.
const std::vector<std::string>& nccl_names();

/// Variables of the same prefix that say where NCCL is installed: not read, but not a mistake.
const std::vector<std::string>& nccl_installation_names();

}  // namespace finetune::comm
