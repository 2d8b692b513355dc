// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/rates.hpp"

#include <ATen/ATen.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "model/device.hpp"
#include "model/products.hpp"
#include "preflight/detail/timing.hpp"

namespace finetune::preflight {
namespace {

constexpr double enough_s = 0.2;

/// Square matrices, and the products that a layer makes of such: its output, and the gradients of
/// its input and of its weights.
struct Product {
  Product(std::int64_t size, at::ScalarType dtype, at::Device device, model::Path how)
      : n(size),
        // Not zeros: a GPU would take less power for them, and run faster than it does in training.
        a(at::randn({n, n}, at::TensorOptions().device(device)).to(dtype)),
        b(at::randn({n, n}, at::TensorOptions().device(device)).to(dtype)),
        c(at::empty({n, n}, at::TensorOptions().device(device).dtype(dtype))),
        path(how) {}

  void compute() {
    model::product_out(c, a, b.t(), path);
    model::product_out(c, a, b, path);
    model::product_out(c, a.t(), b, path);
  }
  double tflops(Timing timing) {
    const double seconds = seconds_of(c, timing, [this] { compute(); });
    const auto side = static_cast<double>(n);
    return 6 * side * side * side / seconds / 1e12;
  }

  std::int64_t n;
  at::Tensor a, b, c;
  model::Path path;
};

struct ProductRate {
  std::int64_t size = 0;
  double tflops = 0;
};

/// The largest products that fit into a moment.
ProductRate large_product(at::ScalarType dtype, const Measuring& how) {
  const at::Device device = model::compute_device(how.device.index);
  constexpr std::int64_t largest = 8192;
  for (std::int64_t n = 256; n <= largest && 3 * 4 * n * n <= how.most_bytes; n *= 2) {
    Product product(n, dtype, device, how.bf16_path);
    product.compute();
    finish(product.c);
    const Timer timer(how.timing, device);
    product.compute();
    finish(product.c);
    // The next size takes eight times as long.
    const bool is_last =
        n == largest || 8 * timer.seconds() > enough_s || 48 * n * n > how.most_bytes;
    if (is_last) return {n, product.tflops(how.timing)};
  }
  return {};
}

}  // namespace

double measure_memory(const comm::Device& device, std::int64_t most_bytes, Timing timing) {
  const at::Device where = model::compute_device(device.index);
  constexpr std::int64_t enough_bytes = std::int64_t{256} << 20;
  const std::int64_t n =
      std::min(most_bytes, where.is_cpu() ? enough_bytes / 2 : 4 * enough_bytes) / 12;
  if (n < 1 << 16) return 0;
  const auto options = at::TensorOptions().device(where).dtype(at::kFloat);
  const at::Tensor a = at::ones({n}, options);
  const at::Tensor b = at::ones({n}, options);
  at::Tensor c = at::empty({n}, options);
  const double seconds = seconds_of(c, timing, [&] { at::add_out(c, a, b); });
  return 12.0 * static_cast<double>(n) / seconds / 1e9;
}

MeasuredRates measure_rates(const Measuring& how) {
  MeasuredRates rates;
  const ProductRate bf16 = large_product(at::kBFloat16, how);
  const ProductRate fp32 = large_product(at::kFloat, how);
  rates.bf16_tflops = bf16.tflops;
  rates.bf16_size = static_cast<double>(bf16.size);
  rates.fp32_tflops = fp32.tflops;
  rates.fp32_size = static_cast<double>(fp32.size);
  if (const std::int64_t small = bf16.size / 4; small > 0)
    rates.half_size = half_size_of(
        static_cast<double>(small),
        Product(small, at::kBFloat16, model::compute_device(how.device.index), how.bf16_path)
            .tflops(how.timing),
        rates.bf16_size, rates.bf16_tflops);
  rates.memory_gb_per_s = measure_memory(how.device, how.most_bytes, how.timing);
  return rates;
}

namespace {

// Then a size eight times as large is not tried.
constexpr double long_s = 0.05;

/// Whether a rank has as much afterwards as before: what is dealt, or handed on.
bool is_exchanged(const std::string& collective) {
  return collective == "all_to_all" || collective == hand_on;
}

/// `count` elements from each rank to each other one, or those of all to the next one.
comm::Ticket start_exchange(const std::string& collective, comm::Group& group,
                            const at::Tensor& whole, at::Tensor& received, std::int64_t count) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  const bool is_ring = collective == hand_on;
  std::vector<std::int64_t> send(size, is_ring ? 0 : 4 * count), receive = send;
  if (is_ring)
    send[(rank + 1) % size] = receive[(rank + size - 1) % size] = 4 * count * group.size();
  return group.all_to_all(whole.const_data_ptr(), send, received.data_ptr(), receive);
}

/// Starts one collective whose whole has `count` elements a rank; `part` is as large as that where
/// ranks exchange, else a rank's.
comm::Ticket start(const std::string& collective, comm::Group& group, at::Tensor& whole,
                   at::Tensor& part, std::int64_t count) {
  if (is_exchanged(collective)) return start_exchange(collective, group, whole, part, count);
  if (collective == "all_gather")
    return group.all_gather(core::DType::f32, part.data_ptr(), whole.data_ptr(), count);
  if (collective == "reduce_scatter")
    return group.reduce_scatter(core::DType::f32, whole.data_ptr(), part.data_ptr(), count);
  return group.all_reduce(core::DType::f32, whole.data_ptr(), count * group.size());
}

double processor_s() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

SweepPoint measure(const std::string& collective, const comm::Communicator& world,
                   comm::Group& group, at::Tensor& whole, at::Tensor& part, std::int64_t count,
                   Timing timing) {
  // Short ones are over before a busy machine has let all ranks run, and mostly wait, which takes
  // no core's time.
  if (count * group.size() < 100'000) timing = Timing::wall;
  const int repeats = count * group.size() < 100'000 ? 10 : 3;
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    world.barrier();
    const core::Stopwatch watch;
    const double begin_s = processor_s();
    group.wait(start(collective, group, whole, part, count));
    group.synchronize();
    best = std::min(best, watch.seconds());
    if (timing == Timing::computing) best = std::min(best, processor_s() - begin_s);
  }
  return {.bytes = 4 * count * group.size(),
          .seconds = world.all_reduce(best, comm::Reduce::max),
          .own_s = best};
}

}  // namespace

std::vector<Sweep> measure_sweeps(const comm::Communicator& world, comm::Group& group,
                                  const comm::Device& device, const std::string& axis,
                                  std::int64_t most_bytes, Timing timing) {
  // Of several groups of an axis all have one size; an axis of one rank has nothing to send.
  const std::int64_t size = group.size();
  if (size == 1) return {};
  constexpr std::array<std::int64_t, 4> sizes = {4 << 10, 256 << 10, 4 << 20, 32 << 20};
  most_bytes = world.all_reduce(most_bytes, comm::Reduce::min);
  std::vector<Sweep> sweeps;
  const auto options =
      at::TensorOptions().device(model::compute_device(device.index)).dtype(at::kFloat);
  for (const std::string& collective : collectives_of(axis)) {
    Sweep& sweep = sweeps.emplace_back();
    sweep.axis = axis;
    sweep.collective = collective;
    sweep.group_size = group.size();
    for (const std::int64_t bytes : sizes) {
      const std::int64_t count = std::max<std::int64_t>(1, bytes / 4 / size);
      if (bytes > sizes.front() && 8 * count * size > most_bytes) break;
      at::Tensor whole = at::zeros({count * size}, options);
      at::Tensor part = at::zeros({is_exchanged(collective) ? count * size : count}, options);
      sweep.points.push_back(measure(collective, world, group, whole, part, count, timing));
      if (sweep.points.back().seconds > long_s) break;
    }
  }
  return sweeps;
}

}  // namespace finetune::preflight
