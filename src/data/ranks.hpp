#pragma once
// SPDX-License-Identifier: Apache-2.0
// Who loads data together.

#include "comm/communicator.hpp"

namespace finetune::data {

/// Default-constructed it is one process alone.
struct Ranks {
  comm::Communicator world;
  comm::Communicator node;  ///< the ranks that see the same local files
};

}  // namespace finetune::data
