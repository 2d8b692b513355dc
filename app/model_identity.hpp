#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether two starts of a command read the same model.

#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace finetune::app {

/// A text that changes when a model or an adapter in one of `folders` does: names, sizes and times
/// of the files with weights, and what the small files say that decide texts. The root reads;
/// everybody gets the same. Empty paths and what cannot be read count as nothing. Collective on
/// `world`.
std::string identity_of_models(const comm::Communicator& world,
                               const std::vector<std::filesystem::path>& folders);

}  // namespace finetune::app
