#pragma once
// SPDX-License-Identifier: Apache-2.0
// The table [machine]: what nodes, links and file system of a machine can do. `finetune plan`
// computes with it; `finetune check --save` measures it.

#include <cstdint>
#include <string>

#include "deck/deck.hpp"

namespace finetune::plan {

/// How the passes other than products are computed.
enum class Passes {
  fused,       ///< one kernel each: ours on the CPU, what a compiler for GPUs makes
  composed,    ///< of ATen's operations, with intermediate results in fp32
  operations,  ///< the same, but for what libtorch has as one operation on GPUs: norms, AdamW
};

/// Rates are those that a large transfer or product reaches, not those of a data sheet. 0: not
/// known; what needs it is then not planned. 1 GB is 1e9 bytes.
struct Machine {
  std::string name;
  bool is_measured = false;  ///< by finetune check --save; else its rates are estimates

  std::int64_t gpus_per_node = 0;  ///< 0: ranks compute on the CPU
  std::string gpu_vendor = "nvidia";
  std::int64_t cores_per_node = 0;
  std::int64_t ranks_per_node = 0;  ///< 0: one per GPU, or one per core
  double gpu_memory_gib = 0;
  double node_memory_gib = 0;

  double peak_tflops = 0;      ///< of a rank in bf16, as its maker says: MFU is measured against it
  double bf16_tflops = 0;      ///< of a rank, in large products; fp16 too
  double fp32_tflops = 0;      ///< the same in fp32
  double fp8_tflops = 0;       ///< with operands of 8 bits; 0: as in bf16
  double memory_gb_per_s = 0;  ///< of a rank: bytes read and written
  /// A product with three dimensions of this size reaches half of the rate; 0: every one reaches
  /// it.
  double product_half_size = 0;
  double product_least_side = 0;  ///< thinner products take as long as of this side
  double attention_tflops = 0;    ///< of a rank, in attention of bf16; 0: as in products
  double fp32_attention_tflops = 0;
  double attention_half_length = 0;  ///< sequences this long reach half of these; 0: every one all
  /// Of a rank: elements read and written in passes over activations that caches hold, in 1e9 a
  /// second; 0: memory alone limits them.
  double pass_gelements_per_s = 0;
  double operation_us = 0;   ///< a rank's program needs to start one operation
  double host_gb_per_s = 0;  ///< of a rank with a GPU: passes over the host's memory
  /// The same, between its GPU and pinned memory of the host, in one direction; 0: host_gb_per_s.
  double host_link_gb_per_s = 0;

  double intra_gb_per_s = 0;    ///< a rank sends to its neighbour in a node while all ranks do
  double intra_latency_us = 0;  ///< of a step of a collective inside a node
  double inter_gb_per_s = 0;    ///< a node sends to another over all its links
  double inter_latency_us = 0;

  double write_gb_per_s = 0;      ///< a node to the file system
  double read_gb_per_s = 0;       ///< a node from it
  double all_write_gb_per_s = 0;  ///< all nodes together; 0: no limit
  double all_read_gb_per_s = 0;
  double node_mtbf_hours = 0;     ///< mean time between failures of a node
  double max_walltime_hours = 0;  ///< of a job

  void bind(deck::Table& table);

  double link_to_host_gb_per_s() const {
    return host_link_gb_per_s > 0 ? host_link_gb_per_s : host_gb_per_s;
  }

  /// Whether this program can compute there: its GPU code is CUDA.
  bool is_supported() const { return gpus_per_node == 0 || gpu_vendor == "nvidia"; }

 private:
  void bind_nodes(deck::Table& table);
  void bind_rates(deck::Table& table);
  void bind_links(deck::Table& table);
  void bind_files(deck::Table& table);
};

}  // namespace finetune::plan
