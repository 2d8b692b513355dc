#pragma once
// SPDX-License-Identifier: Apache-2.0
// What this process runs, as digits to compare.

#include <string>

namespace finetune::preflight {

/// A hash of this program's file (sampled, see sampled_hash, and the same for the same bytes);
/// empty if the system does not show it.
std::string program_hash();

}  // namespace finetune::preflight
