#pragma once
// SPDX-License-Identifier: Apache-2.0
// How this binary was built: for --version, the checkpoint's stamp and the comparison of ranks.

#include <string>
#include <utility>
#include <vector>

namespace finetune::core {

/// Name and value, in the order to print: version, commit, compiler, options, library versions.
std::vector<std::pair<std::string, std::string>> build_info();

/// "13.0": the CUDA that libtorch was built for, which decides what driver is needed; empty in a
/// build without CUDA.
std::string libtorch_cuda();

/// One line of all of it.
std::string build_stamp();

}  // namespace finetune::core
