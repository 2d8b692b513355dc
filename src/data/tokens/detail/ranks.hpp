#pragma once
// SPDX-License-Identifier: Apache-2.0
// Who loads data together.

#include <cstdint>

#include "comm/communicator.hpp"
#include "comm/interrupted.hpp"

namespace finetune::data {

/// Default-constructed it is one process alone.
struct DataRanks {
  comm::Communicator world;
  comm::Communicator node;  ///< the ranks that see the same local files
  comm::Leave leave = {};   ///< of long work, where some rank is to stop
};

/// [first, last) of things that are shared out.
struct Share {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// The part of `count` things that this rank of `ranks` sees to. No communication.
inline Share share_of(std::int64_t count, const comm::Communicator& ranks) {
  // Parts of the quotient first: count * rank may exceed 64 bits.
  const auto bound = [&](std::int64_t rank) {
    return count / ranks.size() * rank + count % ranks.size() * rank / ranks.size();
  };
  return {bound(ranks.rank()), bound(ranks.rank() + 1)};
}

}  // namespace finetune::data
