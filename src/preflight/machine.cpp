// SPDX-License-Identifier: Apache-2.0
#include "preflight/machine.hpp"

#include <algorithm>
#include <set>

#include "core/memory.hpp"
#include "deck/deck.hpp"

namespace finetune::preflight {
namespace {

double median_of(const JobFacts& job, double MeasuredRates::*member) {
  std::vector<double> values;
  for (const Facts& facts : job.ranks)
    values.push_back(facts.rates.*member);
  return median(std::move(values));
}

/// The slowest of an axis, whose collectives a step all needs.
struct MeasuredAxis {
  double ring_gb_per_s = 0;
  double step_us = 0;  ///< of a ring of so many ranks
  int size = 1;
};

MeasuredAxis axis_of(std::span<const Sweep> sweeps, const std::string& name) {
  MeasuredAxis axis;
  for (const Sweep& sweep : sweeps) {
    if (sweep.axis != name || sweep.points.empty() || sweep.collective == "all_reduce") continue;
    const double rate = sweep.ring_gb_per_s();
    axis.ring_gb_per_s = axis.ring_gb_per_s == 0 ? rate : std::min(axis.ring_gb_per_s, rate);
    axis.size = sweep.group_size;
    const double step_us = sweep.latency_us() / (sweep.group_size - 1);
    axis.step_us = axis.step_us == 0 ? step_us : std::min(axis.step_us, step_us);
  }
  return axis;
}

/// Whether the shard group of the first rank is on one node.
bool is_inside_node(int group_size, const JobFacts& job) {
  return static_cast<std::size_t>(group_size) <= job.by_node().front().size();
}

void add_links(const JobFacts& job, std::span<const Link> links, std::span<const Sweep> sweeps,
               plan::Machine& machine) {
  const auto ranks_per_node = static_cast<double>(job.by_node().front().size());
  for (const std::string name :
       {plan::groups::fsdp.name, plan::groups::dp_replicate.name, levels::node, levels::nodes}) {
    const MeasuredAxis axis = axis_of(sweeps, name);
    if (axis.size == 1) continue;
    const bool is_inside =
        (name == plan::groups::fsdp.name && is_inside_node(axis.size, job)) || name == levels::node;
    const bool spans_all = (name == plan::groups::dp_replicate.name && job.nodes.size() > 1 &&
                            static_cast<std::size_t>(axis.size) == job.nodes.size()) ||
                           name == levels::nodes;
    if (is_inside || job.nodes.size() == 1) {
      machine.intra_gb_per_s = axis.ring_gb_per_s;
      machine.intra_latency_us = axis.step_us;
    } else if (spans_all) {
      // All ranks of a node send at once, each in a group of its own.
      machine.inter_gb_per_s = ranks_per_node * axis.ring_gb_per_s;
      machine.inter_latency_us = axis.step_us;
    }
  }
  if (links.empty() || machine.inter_gb_per_s > 0) return;
  std::vector<double> rates, latencies;
  for (const Link& link : links) {
    rates.push_back(link.gbit_per_s / 8);
    latencies.push_back(link.latency_us);
  }
  machine.inter_gb_per_s = median(std::move(rates));
  machine.inter_latency_us = median(std::move(latencies));
}

void add_disks(const JobFacts& job, plan::Machine& machine) {
  std::vector<double> write, read;
  for (const Facts* leader : job.leaders()) {
    write.push_back(leader->of_node.disk.write_gb_per_s);
    read.push_back(leader->of_node.disk.read_gb_per_s);
  }
  machine.write_gb_per_s = median(std::move(write));
  machine.read_gb_per_s = median(std::move(read));
}

}  // namespace

plan::Machine machine_of(const JobFacts& job, std::span<const Link> links,
                         std::span<const Sweep> sweeps) {
  plan::Machine machine;
  const Facts& first = job.ranks.front();
  machine.name = job.nodes.front();
  machine.is_measured = true;
  machine.gpus_per_node = first.num_gpus > 0 ? std::ssize(first.of_node.gpus) : 0;
  machine.cores_per_node = first.cpu.num_online;
  machine.ranks_per_node = std::ssize(job.by_node().front());
  if (machine.gpus_per_node > 0)
    machine.gpu_memory_gib = static_cast<double>(first.of_node.gpus.front().memory_bytes) / 0x1p30;
  // What its ranks can have: that is what a plan needs to know.
  machine.node_memory_gib = static_cast<double>(first.host_memory_bytes) *
                            static_cast<double>(machine.ranks_per_node) / 0x1p30;
  const double half_size = median_of(job, &MeasuredRates::half_size);
  machine.product_half_size = half_size;
  // A plan computes with what products without end would reach.
  machine.bf16_tflops = limit_of(median_of(job, &MeasuredRates::bf16_tflops),
                                 median_of(job, &MeasuredRates::bf16_size), half_size);
  machine.fp32_tflops = limit_of(median_of(job, &MeasuredRates::fp32_tflops),
                                 median_of(job, &MeasuredRates::fp32_size), half_size);
  machine.fp8_tflops = limit_of(median_of(job, &MeasuredRates::fp8_tflops),
                                median_of(job, &MeasuredRates::bf16_size), half_size);
  machine.memory_gb_per_s = median_of(job, &MeasuredRates::memory_gb_per_s);
  machine.product_least_side = median_of(job, &MeasuredRates::least_side);
  machine.attention_tflops = median_of(job, &MeasuredRates::attention_tflops);
  machine.attention_half_length = median_of(job, &MeasuredRates::attention_half_length);
  machine.fp32_attention_tflops = median_of(job, &MeasuredRates::fp32_attention_tflops);
  machine.pass_gelements_per_s = median_of(job, &MeasuredRates::pass_gelements_per_s);
  machine.operation_us = median_of(job, &MeasuredRates::operation_us);
  machine.host_gb_per_s = median_of(job, &MeasuredRates::host_gb_per_s);
  machine.host_link_gb_per_s = median_of(job, &MeasuredRates::host_link_gb_per_s);
  add_links(job, links, sweeps, machine);
  add_disks(job, machine);
  return machine;
}

std::string to_toml(const plan::Machine& machine) {
  deck::Deck deck("", "machine", {});
  deck::Table table = deck.table("machine", "A machine, as finetune check has measured it.");
  plan::Machine copy = machine;
  copy.bind(table);
  return deck.resolved();
}

}  // namespace finetune::preflight
