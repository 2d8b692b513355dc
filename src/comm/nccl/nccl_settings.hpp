#pragma once
// SPDX-License-Identifier: Apache-2.0
// What NCCL finds in the environment when it starts: the deck's [nccl] table, checked names, and
// the network interface between the nodes.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/environment.hpp"

namespace finetune::comm {

/// Variables by full name: {"NCCL_DEBUG", "INFO"}.
using Variables = std::map<std::string, std::string>;

struct NcclSettings {
  Variables variables = {};            ///< of the deck
  bool overrides_environment = false;  ///< where both name a variable, the deck's value holds
  /// Sums have one order from run to run: switches, which add in any, stay out of them unless deck
  /// or environment choose NCCL's algorithms themselves.
  bool keeps_order_of_sums = false;
};

/// "NCCL_SOCKET_IFNAME" for "socket_ifname", and for its full name in any case.
std::string nccl_variable(std::string_view key);

/// What to do with the deck's variables, given those of the environment.
struct NcclExports {
  Variables to_set;
  std::vector<std::string> warnings;
};

/// Decides it: a variable of the environment stays, with a warning if the deck wants another value,
/// unless the deck overrides the environment. Names that NCCL does not know, in either, get a
/// warning with the nearest one that it does.
NcclExports plan_nccl_exports(const NcclSettings& settings, const Variables& environment);

/// The NCCL_* variables of this process.
Variables nccl_environment();

/// The warning that only `num_set` of the ranks have NCCL_SOCKET_IFNAME; `first_without` is the
/// first that has not.
std::optional<std::string> warn_if_partly_set(std::int64_t num_set, std::int64_t num_ranks,
                                              std::int64_t first_without);

/// Sets the variables, chooses NCCL_SOCKET_IFNAME if there is more than one node and no one has,
/// prints all that are set and warns (on the root). Without a GPU NCCL does not run, and there is
/// nothing to choose or print. Before the first NcclCommunicator and before
/// other threads start. Collective on the environment's world.
void prepare_nccl(const Environment& environment, const NcclSettings& settings);

}  // namespace finetune::comm
