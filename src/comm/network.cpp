// SPDX-License-Identifier: Apache-2.0
#include "comm/network.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <sstream>

namespace finetune::comm {
namespace {

std::optional<std::string> address_of(const sockaddr& socket_address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* address = nullptr;
  if (socket_address.sa_family == AF_INET) {
    address = &reinterpret_cast<const sockaddr_in&>(socket_address).sin_addr;
  } else if (socket_address.sa_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(socket_address).sin6_addr;
    // Every interface has one of these, whether it leads anywhere or not.
    if (IN6_IS_ADDR_LINKLOCAL(&six)) return std::nullopt;
    address = &six;
  } else {
    return std::nullopt;
  }
  ::inet_ntop(socket_address.sa_family, address, text.data(), text.size());
  return text.data();
}

/// Whether interface `name` of `node` may lead to other machines.
const Interface* usable(const std::vector<Interface>& node, const std::string& name) {
  const auto found = std::find_if(node.begin(), node.end(), [&](const Interface& one) {
    return one.name == name && one.is_up && !one.is_loopback && !is_virtual(one.name);
  });
  return found == node.end() ? nullptr : &*found;
}

bool is_on_all(std::span<const std::vector<Interface>> nodes, const std::string& name) {
  std::set<std::string> addresses;
  for (const auto& node : nodes) {
    const Interface* found = usable(node, name);
    // A bridge that every machine makes for itself has the same address everywhere.
    if (found == nullptr || !addresses.insert(found->address).second) return false;
  }
  return true;
}

}  // namespace

std::vector<Interface> interfaces_here() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const auto address = address_of(*one->ifa_addr);
    if (!address) continue;
    constexpr unsigned up = IFF_UP | IFF_RUNNING;
    found.push_back({.name = one->ifa_name,
                     .address = *address,
                     .is_up = (one->ifa_flags & up) == up,
                     .is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

bool is_virtual(std::string_view name) {
  constexpr std::array prefixes = {"docker",  "virbr", "veth",      "vnet",  "br-",   "cni",
                                   "flannel", "cali",  "podman",    "lxc",   "lxdbr", "tun",
                                   "tap",     "wg",    "tailscale", "dummy", "kube"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

std::optional<std::string> common_interface(std::span<const std::vector<Interface>> nodes) {
  if (nodes.empty()) return std::nullopt;
  std::optional<std::string> best;
  for (const Interface& one : nodes.front()) {
    if (!is_on_all(nodes, one.name)) continue;
    if (one.name.starts_with("ib")) return one.name;
    if (!best) best = one.name;
  }
  return best;
}

std::string to_text(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& one : interfaces)
    text += fmt::format("{} {} {:d} {:d}\n", one.name, one.address, one.is_up, one.is_loopback);
  return text;
}

std::vector<Interface> interfaces_from_text(std::string_view text) {
  std::vector<Interface> interfaces;
  std::istringstream lines{std::string(text)};
  Interface one;
  while (lines >> one.name >> one.address >> one.is_up >> one.is_loopback)
    interfaces.push_back(one);
  return interfaces;
}

}  // namespace finetune::comm
