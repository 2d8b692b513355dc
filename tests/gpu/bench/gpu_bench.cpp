// SPDX-License-Identifier: Apache-2.0
// Speed of what a step is made of on one GPU: products, copies, attention, the ops between,
// updates.
//   gpu_bench [--tiny] [--budget SECONDS] [--filter TEXT] [--json FILE]
// Prints a table; FILE gets a line of JSON per figure, with the device and the date. --tiny
// rehearses with sizes that mean nothing. Exit code: 0; 1 if a figure failed; 64 for other
// arguments; 77 without a GPU.
#include <fmt/format.h>

#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "gpu/bench/measure.hpp"
#include "gpu/device_under_test.hpp"
#include "shard/device_memory.hpp"

namespace finetune::tests::gpu {
namespace {

std::optional<BenchOptions> parse(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--tiny") {
      options.size = Size::tiny;
    } else if (word == "--budget" && has_value) {
      options.budget_s = std::stod(argv[++i]);
    } else if (word == "--filter" && has_value) {
      options.filter = argv[++i];
    } else if (word == "--json" && has_value) {
      options.json_path = argv[++i];
    } else {
      return std::nullopt;
    }
  }
  return options;
}

int run(const BenchOptions& options) {
  if (!prepare_device()) {
    std::cout << "skipped: there is no GPU here\n";
    return 77;
  }
  std::cout << "device: " << device_name() << "\n";
  Bench bench(options);
  bench_products(bench);
  bench_attention(bench);
  bench_ops(bench);
  bench_updates(bench);
  bench.report("memory/peak_of_this_benchmark",
               static_cast<double>(shard::peak_device_bytes(device()).tensors) / (1 << 30), "GiB");
  std::cout << fmt::format("{} figures, {} failed\n", bench.num_figures(), bench.num_failures());
  return bench.num_failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace finetune::tests::gpu

int main(int argc, char** argv) {
  try {
    const auto options = finetune::tests::gpu::parse(argc, argv);
    if (!options) {
      std::cerr << "error: command line: gpu_bench [--tiny] [--budget SECONDS] [--filter TEXT] "
                   "[--json FILE]\n";
      return 64;
    }
    return finetune::tests::gpu::run(*options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
