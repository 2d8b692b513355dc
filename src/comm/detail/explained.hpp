#pragma once
// SPDX-License-Identifier: Apache-2.0
// Errors of libraries in words for the user, with an exit code.

#include <exception>
#include <string>

#include "core/error.hpp"

namespace finetune::comm {

struct Explained {
  core::ErrorKind kind = core::ErrorKind::bug;
  std::string message;
};

/// Our own errors as they are. Of others: what host or GPU lacks, and what CUDA and its libraries
/// report, is the environment's; the rest is a bug. Stack frames that libtorch adds are left out.
Explained explain(const std::exception& error);

}  // namespace finetune::comm
