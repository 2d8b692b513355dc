// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "comm/device.hpp"
#include "comm/nccl/detail/nccl_names.hpp"
#include "comm/network.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

extern char** environ;

namespace finetune::comm {
namespace {

constexpr std::string_view prefix = "NCCL_";
const std::string interface_name = "NCCL_SOCKET_IFNAME";
const std::string algorithm_name = "NCCL_ALGO";
// NVLink switches that add (NVLink SHARP), inside a node and between nodes: their sums depend on
// which term arrives first.
const std::string without_switches = "^NVLS,NVLSTree";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The nearest by what follows the prefix, which says nothing about how near they are.
std::optional<std::string> nearest_name(const std::string& name) {
  std::vector<std::string> bare;
  for (const std::string& known : nccl_names())
    bare.push_back(known.substr(prefix.size()));
  const auto meant = core::nearest(std::string_view(name).substr(prefix.size()), bare);
  return meant ? std::optional(std::string(prefix) + *meant) : std::nullopt;
}

void warn_if_unknown(const std::string& name, const char* where,
                     std::vector<std::string>& warnings) {
  if (contains(nccl_names(), name) || contains(nccl_installation_names(), name)) return;
  const auto meant = nearest_name(name);
  warnings.push_back(core::to_string(
      {where, fmt::format("NCCL knows no variable {}", name), "it ignores it silently",
       meant ? fmt::format("Did you mean {}?", *meant) : "Remove it, unless a plugin reads it."}));
}

/// The interfaces of every node, those of its first rank.
std::vector<std::vector<Interface>> interfaces_of_nodes(const Environment& environment) {
  const auto texts = environment.world().all_gather_text(to_text(interfaces_here()));
  const Topology& topology = environment.topology();
  std::vector<std::vector<Interface>> nodes(static_cast<std::size_t>(topology.num_nodes));
  for (std::size_t rank = texts.size(); rank-- > 0;) {
    nodes[static_cast<std::size_t>(topology.node_of_rank[rank])] =
        interfaces_from_text(texts[rank]);
  }
  return nodes;
}

/// Sets NCCL_SOCKET_IFNAME where nobody else has. Collective on the environment's world.
void choose_interface(const Environment& environment) {
  // One rank's script may set it and another's not; NCCL would then mix two choices.
  const bool is_set = std::getenv(interface_name.c_str()) != nullptr;
  const std::int64_t num_set = environment.world().all_reduce(std::int64_t{is_set}, Reduce::sum);
  const int world_size = environment.world().size();
  const std::int64_t first_without = environment.world().all_reduce(
      std::int64_t{is_set ? world_size : environment.world().rank()}, Reduce::min);
  const auto chosen = common_interface(interfaces_of_nodes(environment));
  if (const auto warning = warn_if_partly_set(num_set, world_size, first_without))
    log::warn(*warning);
  if (num_set > 0) return;
  if (!chosen) {
    log::info(
        "nccl: no network interface has one name and an address of its own on every node; NCCL "
        "chooses (nccl.socket_ifname overrides)");
    return;
  }
  // With "=" the name is the whole name, not a beginning.
  ::setenv(interface_name.c_str(), ("=" + *chosen).c_str(), 1);
  log::info(fmt::format("nccl: the nodes reach each other over {} (nccl.socket_ifname overrides)",
                        *chosen));
}

}  // namespace

std::string nccl_variable(std::string_view key) {
  std::string name(key);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name.starts_with(prefix) ? name : std::string(prefix) + name;
}

NcclExports plan_nccl_exports(const NcclSettings& settings, const Variables& environment) {
  NcclExports plan;
  for (const auto& [name, value] : settings.variables) {
    warn_if_unknown(name, "[nccl]", plan.warnings);
    const auto there = environment.find(name);
    if (there == environment.end() || settings.overrides_environment) {
      plan.to_set.emplace(name, value);
    } else if (there->second != value) {
      plan.warnings.push_back(core::to_string(
          {"[nccl]", fmt::format("{} = \"{}\" of the deck is not used", name, value),
           fmt::format("the environment sets it to \"{}\"", there->second),
           "Unset it there, or set nccl.override_environment = true."}));
    }
  }
  if (settings.keeps_order_of_sums && !settings.variables.contains(algorithm_name) &&
      !environment.contains(algorithm_name))
    plan.to_set.emplace(algorithm_name, without_switches);
  for (const auto& [name, value] : environment) {
    if (!settings.variables.contains(name)) warn_if_unknown(name, "environment", plan.warnings);
  }
  return plan;
}

Variables nccl_environment() {
  Variables found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t end = text.find('=');
    if (text.starts_with(prefix) && end != std::string_view::npos)
      found.emplace(text.substr(0, end), text.substr(end + 1));
  }
  return found;
}

std::optional<std::string> warn_if_partly_set(std::int64_t num_set, std::int64_t num_ranks,
                                              std::int64_t first_without) {
  if (num_set == 0 || num_set == num_ranks) return std::nullopt;
  return core::to_string(
      {"environment", fmt::format("rank {} has no {}", first_without, interface_name),
       fmt::format("{} of {} ranks have it, and NCCL chooses for the others", num_set, num_ranks),
       "Set it for all ranks or for none, or set nccl.socket_ifname."});
}

void prepare_nccl(const Environment& environment, const NcclSettings& settings) {
  const NcclExports plan = plan_nccl_exports(settings, nccl_environment());
  for (const std::string& warning : plan.warnings)
    log::warn(warning);
  for (const auto& [name, value] : plan.to_set)
    ::setenv(name.c_str(), value.c_str(), 1);
  const std::int64_t sees_gpu = num_gpus() > 0 ? 1 : 0;
  if (environment.world().all_reduce(sees_gpu, Reduce::max) == 0) {
    if (!settings.variables.empty())
      log::info("nccl: no rank has a GPU, so nothing of [nccl] is used");
    return;
  }
  if (environment.topology().num_nodes > 1) choose_interface(environment);

  std::vector<std::string> set;
  for (const auto& [name, value] : nccl_environment())
    set.push_back(fmt::format("{}={}", name, value));
  if (!set.empty()) log::info(fmt::format("nccl: {}", fmt::join(set, " ")));
}

}  // namespace finetune::comm
