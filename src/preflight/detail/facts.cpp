// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/json.hpp"

namespace finetune::preflight {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CoreLoad, core, foreign)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CpuFacts, cores, num_online, numa_of_cores, numa_of_memory,
                                   num_numa, threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, index, uuid, name, driver, clock_mhz, slowed_by_hardware,
                                   slowed_by_limits, lost, uncorrected_errors, pending_pages,
                                   power_limit_w, default_power_limit_w, memory_bytes, free_bytes,
                                   foreign)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DiskFacts, folder, problem, sees_root, free_bytes,
                                   write_gb_per_s, read_gb_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, is_from_leader, disk, gpus, has_nvml, loads,
                                   clock_offset_s, deck, interfaces)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MeasuredRates, bf16_tflops, fp32_tflops, memory_gb_per_s,
                                   bf16_size, fp32_size, half_size, least_side, attention_tflops,
                                   attention_half_length, fp32_attention_tflops,
                                   pass_gelements_per_s, operation_us, host_gb_per_s,
                                   host_link_gb_per_s, fp8_tflops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Facts, rank, node, program, mpi, nccl, memory_bytes,
                                   host_memory_bytes, num_gpus, gpu, nccl_variables, cpu, rates,
                                   of_node)

MeasuredRates best_of(const MeasuredRates& a, const MeasuredRates& b) {
  MeasuredRates best = a.bf16_tflops >= b.bf16_tflops ? a : b;
  const MeasuredRates& fp32 = a.fp32_tflops >= b.fp32_tflops ? a : b;
  best.fp32_tflops = fp32.fp32_tflops;
  best.fp32_size = fp32.fp32_size;
  best.memory_gb_per_s = std::max(a.memory_gb_per_s, b.memory_gb_per_s);
  return best;
}

double half_size_of(double small_size, double small_tflops, double large_size,
                    double large_tflops) {
  if (small_tflops <= 0 || large_tflops <= small_tflops || large_size <= small_size) return 0;
  // 1 / rate = (1 + half / n) / peak is a straight line over 1 / n.
  const double slope = (1 / small_tflops - 1 / large_tflops) / (1 / small_size - 1 / large_size);
  const double inverse_peak = 1 / large_tflops - slope / large_size;
  // A line that promises more than twice what the large product reaches was drawn by chance.
  return 2 * inverse_peak * large_tflops > 1 ? slope / inverse_peak : large_size;
}

double limit_of(double tflops, double size, double half_size) {
  return size > 0 ? tflops * (size + half_size) / size : tflops;
}

double least_side_of(double side, double seconds, const MeasuredRates& rates) {
  const double n = rates.bf16_size;
  const double peak = 1e12 * limit_of(rates.bf16_tflops, n, rates.half_size);
  const auto seconds_of = [&](double thin) {
    const double mean_side = std::cbrt(n * n * thin);
    return 2 * n * n * thin / peak * (mean_side + rates.half_size) / mean_side;
  };
  if (n <= side || peak <= 0 || seconds_of(side) >= seconds) return 0;
  double low = side, high = n;
  for (int i = 0; i < 60; ++i)
    (seconds_of((low + high) / 2) < seconds ? low : high) = (low + high) / 2;
  return high;
}

bool is_bound(const CpuFacts& cpu) {
  return !cpu.cores.empty() && static_cast<int>(cpu.cores.size()) < cpu.num_online;
}

std::string to_text(const Facts& facts) {
  core::Json json = facts;
  if (!facts.of_node.is_from_leader) json["of_node"] = NodeFacts();
  // Names of files and processes may hold any bytes.
  return json.dump(-1, ' ', false, core::Json::error_handler_t::replace);
}

Facts facts_from_text(std::string_view text) {
  return core::Json::parse(text).get<Facts>();
}

std::vector<std::vector<std::size_t>> JobFacts::by_node() const {
  std::vector<std::vector<std::size_t>> of_nodes(nodes.size());
  for (std::size_t i = 0; i < ranks.size(); ++i)
    of_nodes[static_cast<std::size_t>(ranks[i].node)].push_back(i);
  return of_nodes;
}

std::vector<const Facts*> JobFacts::leaders() const {
  std::vector<const Facts*> found;
  for (const Facts& facts : ranks)
    if (facts.of_node.is_from_leader) found.push_back(&facts);
  return found;
}

std::vector<std::string> names_of(const comm::Topology& topology) {
  std::map<std::string, int> count;
  for (const std::string& name : topology.node_names)
    ++count[name];
  std::vector<std::string> names = topology.node_names;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (count[names[i]] > 1) names[i] += fmt::format(" (node {})", i);
  return names;
}

Minority odd_ones(std::span<const std::string> values) {
  std::map<std::string_view, std::size_t> count;
  for (const std::string& value : values)
    ++count[value];
  Minority result;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (count[values[i]] > count[values[result.usual]]) result.usual = i;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != values[result.usual]) result.odd.push_back(i);
  return result;
}

}  // namespace finetune::preflight
