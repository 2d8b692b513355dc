// SPDX-License-Identifier: Apache-2.0
#include "plan/machine/machine.hpp"

namespace finetune::plan {
namespace {

/// Far beyond every machine, and small enough to compute with.
constexpr std::int64_t most_of_node = 65536;
constexpr double most_gib = 1e6, most_rate = 1e9, most_hours = 1e9;

}  // namespace

void Machine::bind(deck::Table& table) {
  bind_nodes(table);
  bind_rates(table);
  bind_links(table);
  bind_files(table);
}

void Machine::bind_nodes(deck::Table& table) {
  using deck::Restart;
  table.text({.name = "name", .restart = Restart::free, .sentence = "What the machine is called."},
             name);
  table.boolean({.name = "is_measured",
                 .restart = Restart::free,
                 .sentence = "Whether finetune check --save has measured the rates; else they are "
                             "estimates, and the plan says so."},
                is_measured);
  table.integer({.name = "gpus_per_node",
                 .restart = Restart::free,
                 .sentence = "GPUs per node; 0: ranks compute on the CPU."},
                gpus_per_node, {.min = 0, .max = most_of_node});
  table.choice({.name = "gpu_vendor",
                .restart = Restart::free,
                .sentence = "Whose GPUs they are. This program computes on those of NVIDIA; others "
                            "can be planned for comparison, but get no jobscript."},
               gpu_vendor, {"nvidia", "amd"});
  table.integer(
      {.name = "cores_per_node", .restart = Restart::free, .sentence = "Cores of a node."},
      cores_per_node, {.min = 0, .max = most_of_node});
  table.integer({.name = "ranks_per_node",
                 .restart = Restart::free,
                 .sentence = "Ranks per node; 0: one per GPU, or one per core.",
                 .unit = "ranks"},
                ranks_per_node, {.min = 0, .max = most_of_node});
  table.real({.name = "gpu_memory_gib",
              .restart = Restart::free,
              .sentence = "Memory of a GPU.",
              .unit = "GiB"},
             gpu_memory_gib, {.min = 0, .max = most_gib});
  table.real({.name = "node_memory_gib",
              .restart = Restart::free,
              .sentence = "Main memory of a node.",
              .unit = "GiB"},
             node_memory_gib, {.min = 0, .max = most_gib});
}

void Machine::bind_rates(deck::Table& table) {
  using deck::Restart;
  table.real(
      {.name = "peak_tflops",
       .restart = Restart::free,
       .sentence = "Rate of bf16 products in the data sheet, per rank; MFU is measured against it.",
       .unit = "TFLOP/s"},
      peak_tflops, {.min = 0, .max = most_rate});
  table.real({.name = "bf16_tflops",
              .restart = Restart::free,
              .sentence = "Rate of large products of bf16 or fp16, per rank.",
              .unit = "TFLOP/s"},
             bf16_tflops, {.min = 0, .max = most_rate});
  table.real({.name = "fp32_tflops",
              .restart = Restart::free,
              .sentence = "Rate of large products of fp32, per rank.",
              .unit = "TFLOP/s"},
             fp32_tflops, {.min = 0, .max = most_rate});
  table.real({.name = "fp8_tflops",
              .restart = Restart::free,
              .sentence = "Rate of large products of 8-bit operands, per rank; 0: that of bf16.",
              .unit = "TFLOP/s"},
             fp8_tflops, {.min = 0, .max = most_rate});
  table.real({.name = "memory_gb_per_s",
              .restart = Restart::free,
              .sentence = "Bytes read and written in passes over memory, per rank.",
              .unit = "GB/s"},
             memory_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "product_half_size",
              .restart = Restart::free,
              .sentence = "A product with three dimensions of this size reaches half of the rate; "
                          "0: every product reaches it."},
             product_half_size, {.min = 0, .max = most_rate});
  table.real({.name = "product_least_side",
              .restart = Restart::free,
              .sentence = "A side of a product that is smaller takes as long as one of this size."},
             product_least_side, {.min = 0, .max = most_rate});
  table.real({.name = "attention_tflops",
              .restart = Restart::free,
              .sentence = "Rate of attention of bf16 or fp16, per rank; 0: the rate of products.",
              .unit = "TFLOP/s"},
             attention_tflops, {.min = 0, .max = most_rate});
  table.real({.name = "fp32_attention_tflops",
              .restart = Restart::free,
              .sentence = "The same in fp32.",
              .unit = "TFLOP/s"},
             fp32_attention_tflops, {.min = 0, .max = most_rate});
  table.real({.name = "attention_half_length",
              .restart = Restart::free,
              .sentence = "Sequences of this length reach half of the rates of attention; 0: every "
                          "one reaches them.",
              .unit = "tokens"},
             attention_half_length, {.min = 0, .max = most_rate});
  table.real({.name = "pass_gelements_per_s",
              .restart = Restart::free,
              .sentence = "Elements that a rank reads and writes in passes over activations where "
                          "memory is not what limits them; 0: memory always does.",
              .unit = "1e9/s"},
             pass_gelements_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "operation_us",
              .restart = Restart::free,
              .sentence = "Time a rank's program needs to start one operation; on a GPU hidden by "
                          "the work before it, if that takes longer.",
              .unit = "us"},
             operation_us, {.min = 0, .max = most_rate});
  table.real({.name = "host_gb_per_s",
              .restart = Restart::free,
              .sentence = "For a rank with a GPU: passes over the host's memory, for an offloaded "
                          "optimizer and for copies to be saved.",
              .unit = "GB/s"},
             host_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "host_link_gb_per_s",
              .restart = Restart::free,
              .sentence = "For a rank with a GPU: copies to or from pinned host memory while all "
                          "ranks of the node copy, for offloaded activations; 0: host_gb_per_s.",
              .unit = "GB/s"},
             host_link_gb_per_s, {.min = 0, .max = most_rate});
}

void Machine::bind_links(deck::Table& table) {
  using deck::Restart;
  table.real(
      {.name = "intra_gb_per_s",
       .restart = Restart::free,
       .sentence = "Rate at which a rank sends to its neighbour inside a node while all ranks do.",
       .unit = "GB/s"},
      intra_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "intra_latency_us",
              .restart = Restart::free,
              .sentence = "Latency of one step of a collective inside a node.",
              .unit = "us"},
             intra_latency_us, {.min = 0, .max = most_rate});
  table.real({.name = "inter_gb_per_s",
              .restart = Restart::free,
              .sentence = "Rate at which a node sends to another over all its links.",
              .unit = "GB/s"},
             inter_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "inter_latency_us",
              .restart = Restart::free,
              .sentence = "Latency of one step of a collective between nodes.",
              .unit = "us"},
             inter_latency_us, {.min = 0, .max = most_rate});
}

void Machine::bind_files(deck::Table& table) {
  using deck::Restart;
  table.real({.name = "write_gb_per_s",
              .restart = Restart::free,
              .sentence = "Rate at which a node writes to the file system.",
              .unit = "GB/s"},
             write_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "read_gb_per_s",
              .restart = Restart::free,
              .sentence = "Rate at which a node reads from the file system.",
              .unit = "GB/s"},
             read_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "all_write_gb_per_s",
              .restart = Restart::free,
              .sentence = "What all nodes together write; 0: no limit.",
              .unit = "GB/s"},
             all_write_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "all_read_gb_per_s",
              .restart = Restart::free,
              .sentence = "What all nodes together read; 0: no limit.",
              .unit = "GB/s"},
             all_read_gb_per_s, {.min = 0, .max = most_rate});
  table.real({.name = "node_mtbf_hours",
              .restart = Restart::free,
              .sentence = "Mean time between failures of one node.",
              .unit = "h"},
             node_mtbf_hours, {.min = 0, .max = most_hours});
  table.real({.name = "max_walltime_hours",
              .restart = Restart::free,
              .sentence = "Longest job that the queue takes; 0: no limit.",
              .unit = "h"},
             max_walltime_hours, {.min = 0, .max = most_hours});
}

}  // namespace finetune::plan
