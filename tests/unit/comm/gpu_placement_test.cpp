// SPDX-License-Identifier: Apache-2.0
// Which GPU each rank of an invented node gets, and who is refused.
#include "comm/detail/gpu_placement.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "comm/detail/gpu_distance.hpp"
#include "support/folders.hpp"

namespace finetune::comm::gpu_placement_test {
namespace {

namespace fs = std::filesystem;

std::string address(int gpu) {
  return fmt::format("0000:{:02x}:00.0", gpu + 1);
}

/// A node as its system describes it: NUMA nodes of `cores_per_node` cores each, and the NUMA nodes
/// that each GPU is near to.
class Machine {
 public:
  Machine(const std::string& name, int num_nodes, int cores_per_node,
          const std::vector<std::vector<int>>& nodes_of_gpus)
      : root_(tests::build_folder() / ("tests/comm.machine." + name)),
        cores_per_node_(cores_per_node),
        num_gpus_(static_cast<int>(nodes_of_gpus.size())) {
    fs::remove_all(root_);
    write("sys/devices/system/cpu/online", fmt::format("0-{}", num_nodes * cores_per_node - 1));
    write("sys/devices/system/node/online", fmt::format("0-{}", num_nodes - 1));
    for (int node = 0; node < num_nodes; ++node) {
      write(fmt::format("sys/devices/system/node/node{}/cpulist", node), cores_of(node));
      // Two sockets with half of the nodes each.
      std::string distances;
      for (int other = 0; other < num_nodes; ++other) {
        const bool is_near = node / (num_nodes / 2) == other / (num_nodes / 2);
        distances += fmt::format("{} ", node == other ? 10 : is_near ? 12 : 32);
      }
      write(fmt::format("sys/devices/system/node/node{}/distance", node), distances);
    }
    for (int gpu = 0; gpu < num_gpus_; ++gpu) {
      std::string near;
      for (const int node : nodes_of_gpus[static_cast<std::size_t>(gpu)])
        near += (near.empty() ? "" : ",") + cores_of(node);
      write("sys/bus/pci/devices/" + address(gpu) + "/local_cpulist", near);
    }
  }

  /// A rank that is bound to cores `first` ... `first` + `count` - 1 and sees `gpus` (all: none
  /// named).
  NodeRank rank(int rank, int first, int count, std::vector<int> gpus = {}) const {
    std::vector<int> cores;
    for (int core = first; core < first + count; ++core)
      cores.push_back(core);
    NodeRank made{.rank = rank, .is_bound = are_some_of_all(cores, root_)};
    for (int gpu = 0; gpu < num_gpus_ && gpus.empty(); ++gpu)
      made.gpus.push_back(seen(gpu, cores));
    for (const int gpu : gpus)
      made.gpus.push_back(seen(gpu, cores));
    return made;
  }

 private:
  SeenGpu seen(int gpu, const std::vector<int>& cores) const {
    return {fmt::format("GPU-{}", gpu), address(gpu), gpu_distance(address(gpu), cores, root_)};
  }
  std::string cores_of(int node) const {
    return fmt::format("{}-{}", node * cores_per_node_, (node + 1) * cores_per_node_ - 1);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  fs::path root_;
  int cores_per_node_;
  int num_gpus_;
};

/// Four GPUs, each near one NUMA node of four, in reversed order.
Machine reversed() {
  return {"reversed", 4, 16, {{3}, {2}, {1}, {0}}};
}

TEST(Placement, ReversedNumbersAreTurnedBack) {
  const Machine machine = reversed();
  const std::vector<NodeRank> ranks = {machine.rank(0, 0, 16), machine.rank(1, 16, 16),
                                       machine.rank(2, 32, 16), machine.rank(3, 48, 16)};
  const Placement placement = place_ranks(ranks);
  EXPECT_EQ(placement.device, (std::vector<int>{3, 2, 1, 0}));
  EXPECT_EQ(to_string(placement.by), "near its cores");
}

TEST(Placement, AGpuOfTheSameSocketIsNearerThanOneOfTheOther) {
  // Eight NUMA nodes, GPUs near the odd ones alone; ranks on even ones.
  const Machine machine("eight_nodes", 8, 8, {{7}, {5}, {3}, {1}});
  const std::vector<NodeRank> ranks = {machine.rank(0, 0, 8), machine.rank(1, 16, 8),
                                       machine.rank(2, 32, 8), machine.rank(3, 48, 8)};
  std::vector<int> device = place_ranks(ranks).device;
  EXPECT_EQ(std::set<int>(device.begin(), device.begin() + 2), (std::set<int>{2, 3}));
  EXPECT_EQ(std::set<int>(device.begin() + 2, device.end()), (std::set<int>{0, 1}));
}

TEST(Placement, RanksThatAreNotBoundGoByOrder) {
  const Machine machine = reversed();
  std::vector<NodeRank> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(machine.rank(rank, 0, 64));
  const Placement placement = place_ranks(ranks);
  EXPECT_EQ(placement.device, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(placement.by, PlacedBy::order);
}

TEST(Placement, ASystemThatSaysNothingLeavesTheOrder) {
  const Machine machine = reversed();
  std::vector<NodeRank> ranks = {machine.rank(0, 0, 16), machine.rank(1, 16, 16)};
  ranks[1].gpus[2].distance = gpu_distance("0000:ff:00.0", std::vector<int>{0}, "/nowhere");
  const Placement placement = place_ranks(ranks);
  EXPECT_EQ(placement.device, (std::vector<int>{0, 1}));
  EXPECT_EQ(placement.by, PlacedBy::order_blind);
}

TEST(Placement, FewerRanksThanGpusTakeTheNearOnes) {
  const Machine machine("two_sockets", 2, 8, {{0}, {0}, {1}, {1}});
  const std::vector<NodeRank> far = {machine.rank(0, 8, 4), machine.rank(1, 12, 4)};
  EXPECT_EQ(place_ranks(far).device, (std::vector<int>{2, 3}));
  const std::vector<NodeRank> both = {machine.rank(0, 0, 8), machine.rank(1, 8, 8)};
  EXPECT_EQ(place_ranks(both).device, (std::vector<int>{0, 2}));
  EXPECT_EQ(place_ranks(std::vector<NodeRank>{machine.rank(0, 8, 8)}).device, std::vector<int>{2});
}

TEST(Placement, MoreRanksThanNearGpusShareOutTheRest) {
  // Three ranks on a socket with two GPUs: one of them has to go far.
  const Machine machine("crowded", 2, 12, {{0}, {0}, {1}, {1}});
  const std::vector<NodeRank> ranks = {machine.rank(0, 0, 4), machine.rank(1, 4, 4),
                                       machine.rank(2, 8, 4), machine.rank(3, 12, 12)};
  const std::vector<int> device = place_ranks(ranks).device;
  EXPECT_EQ(std::set<int>(device.begin(), device.end()), (std::set<int>{0, 1, 2, 3}));
  EXPECT_GE(device[3], 2);
}

TEST(Placement, RanksThatSeeOneEachTakeIt) {
  const Machine machine = reversed();
  const std::vector<NodeRank> ranks = {machine.rank(0, 0, 16, {2}), machine.rank(1, 16, 16, {0})};
  const Placement placement = place_ranks(ranks);
  EXPECT_EQ(placement.device, (std::vector<int>{0, 0}));
  EXPECT_EQ(placement.by, PlacedBy::launcher);
}

TEST(Placement, ARankThatSeesMoreLeavesToOthersWhatTheyAloneSee) {
  const Machine machine = reversed();
  // All would like GPU 3, which is all that rank 1 sees; numbers are each rank's own.
  const std::vector<NodeRank> ranks = {machine.rank(0, 0, 16, {3, 2}), machine.rank(1, 0, 16, {3}),
                                       machine.rank(2, 0, 16, {2, 1, 0})};
  EXPECT_EQ(place_ranks(ranks).device, (std::vector<int>{1, 0, 1}));
}

TEST(Placement, EveryRankGetsOneOfItsOwnWhereverRanksAndGpusAre) {
  // Counter-based invention of nodes: whatever is drawn, no GPU goes to two ranks.
  std::uint32_t state = 1;
  const auto draw = [&](int below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>((state >> 16) % static_cast<unsigned>(below));
  };
  for (int trial = 0; trial < 200; ++trial) {
    const int num_gpus = 1 + draw(8);
    const int num_ranks = 1 + draw(num_gpus);
    std::vector<NodeRank> ranks;
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks.push_back({.rank = rank, .is_bound = true});
      for (int gpu = 0; gpu < num_gpus; ++gpu)
        ranks.back().gpus.push_back({fmt::format("GPU-{}", gpu), address(gpu), 100 * draw(30)});
    }
    const std::vector<int> device = place_ranks(ranks).device;
    EXPECT_EQ(place_ranks(ranks).device, device) << "every rank decides alike";
    EXPECT_EQ(std::ssize(std::set<int>(device.begin(), device.end())), num_ranks);
    // No two of them could exchange, and none could move, to be nearer together.
    const auto distance = [&](int rank, int gpu) {
      return ranks[static_cast<std::size_t>(rank)].gpus[static_cast<std::size_t>(gpu)].distance;
    };
    for (int a = 0; a < num_ranks; ++a) {
      const int of_a = device[static_cast<std::size_t>(a)];
      for (int b = 0; b < a; ++b) {
        const int of_b = device[static_cast<std::size_t>(b)];
        EXPECT_LE(distance(a, of_a) + distance(b, of_b), distance(a, of_b) + distance(b, of_a));
      }
      for (int gpu = 0; gpu < num_gpus; ++gpu) {
        if (std::ranges::find(device, gpu) != device.end()) continue;
        EXPECT_LE(distance(a, of_a), distance(a, gpu));
      }
    }
  }
}

TEST(Placement, TravelsAsText) {
  const NodeRank rank = reversed().rank(2, 16, 16);
  const NodeRank read = node_rank_from_text(to_text(rank));
  EXPECT_EQ(read.rank, 2);
  EXPECT_TRUE(read.is_bound);
  EXPECT_EQ(read.gpus.at(3).pci, address(3));
  EXPECT_EQ(read.gpus.at(3).distance, rank.gpus.at(3).distance);
}

NodeRank sees(int rank, const std::vector<SeenGpu>& gpus) {
  return {.rank = rank, .gpus = gpus};
}

const SeenGpu a = {.uuid = "GPU-a", .pci = "0000:01:00.0"};
const SeenGpu b = {.uuid = "GPU-b", .pci = "0000:02:00.0"};
const SeenGpu part_1 = {.uuid = "MIG-1", .pci = "0000:01:00.0"};
const SeenGpu part_2 = {.uuid = "MIG-2", .pci = "0000:01:00.0"};

struct Node {
  const char* name;
  std::vector<NodeRank> ranks;
  std::vector<int> device;  ///< none: refused
  const char* refusal;
};

std::vector<Node> nodes() {
  return {
      {"a rank that sees all takes the first", {sees(0, {a, b})}, {0}, ""},
      {"each sees its own by UUID", {sees(4, {b}), sees(5, {a})}, {0, 0}, ""},
      {"none sees any", {sees(0, {}), sees(1, {})}, {-1, -1}, ""},
      {"only one sees some, which all ranks are told together",
       {sees(0, {a}), sees(1, {})},
       {0, -1},
       ""},
      {"one GPU for two ranks",
       {sees(6, {a}), sees(7, {a})},
       {},
       "rank 7: no GPU is left for it (the 2 ranks of its node see 1 GPU together)"},
      {"fewer GPUs than ranks",
       {sees(0, {a, b}), sees(1, {a, b}), sees(2, {a, b})},
       {},
       "rank 2: no GPU is left for it (the 3 ranks of its node see 2 GPUs together)"},
      {"a part of a GPU for the only rank", {sees(0, {part_1})}, {0}, ""},
      {"parts of one GPU",
       {sees(0, {part_1}), sees(1, {part_2})},
       {},
       "rank 1: no GPU is left for it (the 2 ranks of its node see parts (MIG) of 1 GPU"},
  };
}

TEST(Placement, RefusesWhatCannotWorkTogether) {
  for (const Node& node : nodes()) {
    try {
      EXPECT_EQ(place_ranks(node.ranks).device, node.device) << node.name;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::environment) << node.name;
      EXPECT_TRUE(node.device.empty()) << node.name << ": " << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with(node.refusal))
          << node.name << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace finetune::comm::gpu_placement_test
