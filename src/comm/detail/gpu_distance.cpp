// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/gpu_distance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "core/cores.hpp"

namespace finetune::comm {
namespace {

namespace fs = std::filesystem;

// As Linux has it for a node itself, and for another one of which firmware says nothing.
constexpr int to_itself = 10;
constexpr int to_another = 20;

std::vector<int> list_in(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return core::parse_list(line);
}

bool has(std::span<const int> numbers, int number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

struct NumaNode {
  std::vector<int> cores;
  int to_gpu = std::numeric_limits<int>::max();  ///< from its cores to the nearest of the GPU's
};

/// The NUMA nodes of the system, measured from those that have cores near the GPU.
std::vector<NumaNode> numa_nodes(std::span<const int> near, const fs::path& folder) {
  const std::vector<int> numbers = list_in(folder / "online");
  std::vector<NumaNode> nodes;
  for (const int number : numbers)
    nodes.push_back({list_in(folder / fmt::format("node{}/cpulist", number))});
  for (std::size_t from = 0; from < nodes.size(); ++from) {
    std::ifstream file(folder / fmt::format("node{}/distance", numbers[from]));
    for (std::size_t to = 0; to < nodes.size(); ++to) {
      int distance = from == to ? to_itself : to_another;
      file >> distance;
      if (file.fail()) distance = from == to ? to_itself : to_another;
      const bool is_gpus =
          std::ranges::any_of(nodes[to].cores, [&](int core) { return has(near, core); });
      if (is_gpus) nodes[from].to_gpu = std::min(nodes[from].to_gpu, distance);
    }
  }
  return nodes;
}

int distance_of(int core, std::span<const int> near, std::span<const NumaNode> nodes) {
  if (has(near, core)) return to_itself;
  for (const NumaNode& node : nodes)
    if (has(node.cores, core) && node.to_gpu != std::numeric_limits<int>::max())
      // Its node may have near cores without this one being one of them.
      return std::max(node.to_gpu, to_itself + 1);
  return to_another;
}

}  // namespace

int gpu_distance(const std::string& pci, std::span<const int> cores, const fs::path& root) {
  const std::vector<int> near = list_in(root / "sys/bus/pci/devices" / pci / "local_cpulist");
  if (near.empty() || cores.empty()) return -1;
  const auto nodes = numa_nodes(near, root / "sys/devices/system/node");
  long long sum = 0;
  for (const int core : cores)
    sum += distance_of(core, near, nodes);
  return static_cast<int>(100 * sum / std::ssize(cores));
}

bool are_some_of_all(std::span<const int> cores, const fs::path& root) {
  return !cores.empty() &&
         std::ssize(cores) < std::ssize(list_in(root / "sys/devices/system/cpu/online"));
}

}  // namespace finetune::comm
