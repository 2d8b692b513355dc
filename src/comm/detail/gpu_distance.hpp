#pragma once
// SPDX-License-Identifier: Apache-2.0
// How far a GPU is from processor cores, as the system tells it.

#include <filesystem>
#include <span>
#include <string>

namespace finetune::comm {

/// Of the GPU at the PCI address `pci` ("0000:c1:00.0") from `cores`, the mean of all of them, in
/// hundredths of what Linux calls the distance of NUMA nodes: 1000 is near, 2000 about twice as
/// far. -1 where the system does not say which cores are near it (some virtual machines and
/// containers). `root` holds sys/; another than "/" is for tests.
int gpu_distance(const std::string& pci, std::span<const int> cores,
                 const std::filesystem::path& root = "/");

/// Whether the system has cores that are not among `cores`.
bool are_some_of_all(std::span<const int> cores, const std::filesystem::path& root = "/");

}  // namespace finetune::comm
