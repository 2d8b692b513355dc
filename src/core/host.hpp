#pragma once
// SPDX-License-Identifier: Apache-2.0
// The computer this process runs on.

#include <string>

namespace finetune::core {

/// Its name, cut after 255 bytes.
std::string host_name();

}  // namespace finetune::core
