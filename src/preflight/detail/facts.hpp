#pragma once
// SPDX-License-Identifier: Apache-2.0
// What each rank found out about itself and, the first rank of a node, about its node. Pure data:
// the judges (judge.hpp) read them, whether measured or invented by a test.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/environment.hpp"

namespace finetune::preflight {

/// What of a core other processes than this job's took.
struct CoreLoad {
  int core = 0;
  double foreign = 0;  ///< 0 .. 1
};

struct CpuFacts {
  std::vector<int> cores = {};           ///< this rank may run on
  int num_online = 0;                    ///< cores of the node
  std::vector<int> numa_of_cores = {};   ///< NUMA nodes that these cores belong to
  std::vector<int> numa_of_memory = {};  ///< NUMA nodes that memory may come from
  int num_numa = 0;                      ///< of the node
  int threads = 1;                       ///< that compute
};

/// Whether it may not run on all cores of its node.
bool is_bound(const CpuFacts& cpu);

/// A GPU as NVML reports it. -1: NVML does not say.
struct Gpu {
  int index = 0;
  std::string uuid = {};
  std::string name = {};
  std::string driver = {};
  std::int64_t clock_mhz = -1;  ///< of the multiprocessors, the highest it may have
  /// Why it is slower than it could be, other than being idle: what the hardware forces on it, and
  /// what the driver does so that it keeps its limits.
  std::vector<std::string> slowed_by_hardware = {};
  std::vector<std::string> slowed_by_limits = {};
  std::string lost = {};  ///< why it cannot be used, "has fallen off the bus"; empty if it can
  std::int64_t uncorrected_errors = -1;  ///< of its memory since the driver was loaded
  std::int64_t pending_pages = -1;       ///< 1: rows or pages wait to be taken out of use
  std::int64_t power_limit_w = -1;
  std::int64_t default_power_limit_w = -1;
  std::int64_t memory_bytes = -1;
  std::int64_t free_bytes = -1;
  std::vector<std::string> foreign = {};  ///< processes that compute on it: "1234 (python)"
};

/// The output folder as a node sees it.
struct DiskFacts {
  std::string folder = {};   ///< it, or the nearest folder above that exists
  std::string problem = {};  ///< why it cannot be written to; empty if it can
  bool sees_root = true;     ///< what rank 0 writes there
  std::int64_t free_bytes = -1;
  double write_gb_per_s = 0;
  double read_gb_per_s = 0;
};

struct NodeFacts {
  bool is_from_leader = false;  ///< the first rank of its node; others say nothing
  DiskFacts disk;
  std::vector<Gpu> gpus = {};
  bool has_nvml = false;
  std::vector<CoreLoad> loads = {};
  double clock_offset_s = 0;    ///< of its wall clock to that of rank 0
  std::string deck = {};        ///< hash of the deck's file; empty if it cannot be read
  std::string interfaces = {};  ///< comm::to_text
};

/// Of one rank in large products and passes over memory; 0: not measured.
struct MeasuredRates {
  double bf16_tflops = 0;
  double fp32_tflops = 0;
  double memory_gb_per_s = 0;
  double bf16_size = 0;  ///< dimensions of the products with which it was reached
  double fp32_size = 0;
  double half_size = 0;  ///< see plan::Machine::product_half_size

  // As in plan::Machine; 0 where nothing is saved.
  double least_side = 0;
  double attention_tflops = 0;
  double attention_half_length = 0;
  double fp32_attention_tflops = 0;
  double pass_gelements_per_s = 0;
  double operation_us = 0;
  double host_gb_per_s = 0;
  double host_link_gb_per_s = 0;
  double fp8_tflops = 0;
};

/// The better of two measurements in each.
MeasuredRates best_of(const MeasuredRates& a, const MeasuredRates& b);

/// What small and large products say of all: a rate of peak * n / (n + half) in products of size n.
/// 0 if small ones are as fast; at most the size of the large ones.
double half_size_of(double small_size, double small_tflops, double large_size, double large_tflops);

/// The peak of that line, through a rate measured at `size`.
double limit_of(double tflops, double size, double half_size);

/// How large the thin side of a product [bf16_size, side] [side, bf16_size] seems to be by the
/// seconds it takes at these rates; 0 if no larger than it is.
double least_side_of(double side, double seconds, const MeasuredRates& rates);

struct Facts {
  int rank = 0;
  int node = 0;
  std::string program = {};  ///< hash of the binary
  std::string mpi = {};
  std::string nccl = {};
  std::int64_t memory_bytes = 0;       ///< this rank may take, where it computes
  std::int64_t host_memory_bytes = 0;  ///< of its node, its share
  int num_gpus = 0;                    ///< it sees
  std::string gpu = {};  ///< UUID of the one it computes on; empty: none, or not chosen yet
  std::string nccl_variables = {};  ///< "NAME=value" a line
  CpuFacts cpu;
  MeasuredRates rates;
  NodeFacts of_node;
};

std::string to_text(const Facts& facts);
Facts facts_from_text(std::string_view text);

/// Facts of all ranks, and what the nodes are called.
struct JobFacts {
  std::vector<std::string> nodes = {};  ///< names, each of them once
  std::vector<Facts> ranks = {};
  bool is_full = true;  ///< not the quick check: then some oddities deserve no warning
  /// Whether it is known what the ranks compute on; before, GPUs that are there count as theirs.
  bool are_devices_chosen = true;

  const std::string& node_of(const Facts& facts) const {
    return nodes[static_cast<std::size_t>(facts.node)];
  }
  /// Ranks of each node, as indices into `ranks`.
  std::vector<std::vector<std::size_t>> by_node() const;
  /// The facts of each node that reports them.
  std::vector<const Facts*> leaders() const;
};

/// Host names; where several nodes have one, each is followed by its number.
std::vector<std::string> names_of(const comm::Topology& topology);

/// Which of `values` are unlike the one that most have; rank 0's (the first) wins where as many
/// have another.
struct Minority {
  std::size_t usual = 0;              ///< one that has the usual value
  std::vector<std::size_t> odd = {};  ///< those that have another
};
Minority odd_ones(std::span<const std::string> values);

}  // namespace finetune::preflight
