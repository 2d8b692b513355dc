#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ranks look for the records of different files, and tell each other.

#include "comm/communicator.hpp"
#include "data/text/source.hpp"

namespace finetune::data {

/// Afterwards every rank knows where the records of all files are, and each file was passed over by
/// one rank.
/// Collective on `world`. Throws: comm::AgreedError as Records::index, or if ranks have different
/// numbers of files.
void share_indices(const comm::Communicator& world, const SampleSource& source);

}  // namespace finetune::data
