// SPDX-License-Identifier: Apache-2.0
#include "gpu/bench/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <iostream>
#include <vector>

#include "core/json.hpp"
#include "gpu/device_under_test.hpp"
#include "shard/compute_stream.hpp"
#include "shard/compute_timer.hpp"

namespace finetune::tests::gpu {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

double ms_of(const Bench::Timed& f) {
  shard::ComputeTimer timer(device());
  timer.begin();
  f();
  timer.end();
  shard::wait_for_compute(device());
  return 1e3 * timer.seconds();
}

std::vector<double> timings(const Bench::Timed& f, bool is_tiny) {
  for (int i = 0; i < (is_tiny ? 1 : 3); ++i)
    f();
  shard::wait_for_compute(device());
  const core::Stopwatch watch;
  const std::size_t least = is_tiny ? 2 : 5, most = is_tiny ? 2 : 50;
  std::vector<double> all;
  while (all.size() < most && (all.size() < least || watch.seconds() < 0.5))
    all.push_back(ms_of(f));
  std::ranges::sort(all);
  return all;
}

}  // namespace

Bench::Bench(const BenchOptions& options) : options_(options), date_(today()) {
  if (!options_.json_path.empty()) json_.open(options_.json_path, std::ios::app);
}

at::Tensor Bench::numbers(at::IntArrayRef shape, at::ScalarType dtype) const {
  // Waves are as good as chance here, and every device makes them fast.
  std::int64_t count = 1;
  for (const std::int64_t size : shape)
    count *= size;
  return at::arange(count, at::TensorOptions(at::kFloat).device(device()))
      .mul_(1.7)
      .sin_()
      .to(dtype)
      .view(shape);
}

bool Bench::is_due(const std::string& name, Where where) {
  if (name.find(options_.filter) == std::string::npos) return false;
  if (where == Where::cuda && !device().is_cuda()) {
    std::cout << fmt::format("{:<44} left out: only CUDA has it\n", name);
    return false;
  }
  if (watch_.seconds() > options_.budget_s) {
    std::cout << fmt::format("{:<44} left out: {:.0f} s are spent\n", name, options_.budget_s);
    return false;
  }
  return true;
}

void Bench::guarded(const std::string& name, const Timed& f) {
  try {
    f();
  } catch (const std::exception& error) {
    ++num_failures_;
    const std::string text = error.what();
    std::cout << fmt::format("{:<44} FAILED: {}\n", name, text.substr(0, text.find('\n')));
  }
  std::cout.flush();
}

void Bench::time(const std::string& name, const Work& work, const std::function<Timed()>& prepare,
                 Where where) {
  if (!is_due(name, where)) return;
  guarded(name, [&] {
    const std::vector<double> all = timings(prepare(), is_tiny());
    write(name, all[all.size() / 2], all.front(), all.back(), work);
  });
}

void Bench::once(const std::string& name, const Timed& f, Where where) {
  if (!is_due(name, where)) return;
  guarded(name, [&] {
    shard::wait_for_compute(device());
    const core::Stopwatch watch;
    f();
    shard::wait_for_compute(device());
    const double ms = 1e3 * watch.seconds();
    write(name, ms, ms, ms, {});
  });
}

void Bench::report(const std::string& name, double value, const std::string& unit) {
  ++num_figures_;
  std::cout << fmt::format("{:<44} {:>10.4g} {}\n", name, value, unit);
  if (json_)
    json_ << core::Json{{"figure", name},
                        {"value", value},
                        {"unit", unit},
                        {"device", device_name()},
                        {"date", date_}}
                 .dump()
          << "\n";
}

double Bench::of_plan(double median_ms, const Work& work) const {
  return work.planned_bytes > 0 ? median_ms * copied_gb_per_s_ * 1e6 / work.planned_bytes : 0;
}

void Bench::write(const std::string& name, double median_ms, double least_ms, double most_ms,
                  const Work& work) {
  ++num_figures_;
  core::Json row = {{"figure", name},     {"median_ms", median_ms},  {"least_ms", least_ms},
                    {"most_ms", most_ms}, {"device", device_name()}, {"date", date_}};
  std::string rate;
  if (work.flops > 0) {
    row["tflops"] = work.flops / median_ms / 1e9;
    rate = fmt::format("{:>9.1f} TFLOP/s", work.flops / median_ms / 1e9);
  } else if (work.bytes > 0) {
    row["gb_per_s"] = work.bytes / median_ms / 1e6;
    rate = fmt::format("{:>9.0f} GB/s", work.bytes / median_ms / 1e6);
    if (name == device_copy) copied_gb_per_s_ = work.bytes / median_ms / 1e6;
  }
  if (const double times = of_plan(median_ms, work); times > 0) {
    row["of_plan"] = times;
    rate += fmt::format(", {:.2f} of the planned time", times);
  }
  std::cout << fmt::format("{:<44} {:>10.4f} ms ({:.4f} to {:.4f}) {}\n", name, median_ms, least_ms,
                           most_ms, rate);
  if (json_) json_ << row.dump() << std::endl;
}

}  // namespace finetune::tests::gpu
