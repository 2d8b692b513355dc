#pragma once
// SPDX-License-Identifier: Apache-2.0
// Network interfaces of the nodes, and the one that leads from each to the others.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::comm {

struct Interface {
  std::string name;
  std::string address;  ///< IPv4 or IPv6, as text
  bool is_up = true;    ///< and has a carrier
  bool is_loopback = false;
};

/// Those of this machine that have an address, in the system's order; one entry an address.
std::vector<Interface> interfaces_here();

/// Whether containers, virtual machines and tunnels make interfaces of this name: they lead to
/// nobody outside the machine.
bool is_virtual(std::string_view name);

/// The name of the interface over which the nodes reach each other, as far as names and addresses
/// tell: up, not loopback, not virtual, present on all nodes under one name, with another address
/// on each. InfiniBand's (ib...) go first, as NCCL does it, then the first node's order. Nothing if
/// there is none. Shapes: nodes [number of nodes].
std::optional<std::string> common_interface(std::span<const std::vector<Interface>> nodes);

/// One text a machine and back, to exchange them.
std::string to_text(std::span<const Interface> interfaces);
std::vector<Interface> interfaces_from_text(std::string_view text);

}  // namespace finetune::comm
