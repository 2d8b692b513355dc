// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/cpus.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "core/clock.hpp"
#include "core/cores.hpp"

namespace finetune::preflight {
namespace {

namespace fs = std::filesystem;

constexpr double least_told = 0.05;

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// What follows "name:" in a file of such lines.
std::string field(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  return {};
}

/// Seconds that each core has worked, or was taken by the machine's host, since it started.
std::vector<double> busy_seconds() {
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::vector<double> seconds;
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu") || line.size() < 4 ||
        std::isdigit(static_cast<unsigned char>(line[3])) == 0)
      continue;
    std::istringstream words(line.substr(3));
    std::size_t core = 0;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    words >> core >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
    if (seconds.size() <= core) seconds.resize(core + 1, 0);
    seconds[core] = (user + nice + system + irq + soft + steal) / ticks;
  }
  return seconds;
}

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Computes for so long and notes on which cores.
std::vector<double> spin(double seconds, std::size_t num_cores) {
  std::vector<double> used(num_cores, 0.0);
  const core::Stopwatch watch;
  double before = thread_seconds();
  while (watch.seconds() < seconds) {
    volatile double sum = 0;
    for (int i = 0; i < 2000; ++i)
      sum = sum + i;
    const int core = ::sched_getcpu();
    const double now = thread_seconds();
    if (core >= 0 && static_cast<std::size_t>(core) < used.size())
      used[static_cast<std::size_t>(core)] += now - before;
    before = now;
  }
  return used;
}

}  // namespace

std::string list_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    if (!text.empty()) text += ",";
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

CpuFacts cpus_here(int threads, const fs::path& root, std::vector<int> cores) {
  CpuFacts facts;
  facts.threads = threads;
  facts.cores = cores.empty() ? core::own_cores() : std::move(cores);
  const fs::path system = root / "sys/devices/system";
  facts.num_online = static_cast<int>(core::parse_list(first_line(system / "cpu/online")).size());
  const std::set<int> own(facts.cores.begin(), facts.cores.end());
  const auto nodes = core::parse_list(first_line(system / "node/online"));
  facts.num_numa = static_cast<int>(nodes.size());
  for (const int node : nodes) {
    const auto list =
        core::parse_list(first_line(system / fmt::format("node/node{}/cpulist", node)));
    if (std::ranges::any_of(list, [&](int core) { return own.contains(core); }))
      facts.numa_of_cores.push_back(node);
  }
  facts.numa_of_memory = core::parse_list(field(root / "proc/self/status", "Mems_allowed_list"));
  return facts;
}

std::vector<CoreLoad> foreign_loads(const std::vector<double>& busy_s,
                                    const std::vector<double>& own_s, double seconds) {
  std::vector<CoreLoad> loads;
  for (std::size_t core = 0; core < busy_s.size() && core < own_s.size(); ++core) {
    const double foreign = std::clamp((busy_s[core] - own_s[core]) / seconds, 0.0, 1.0);
    if (foreign >= least_told) loads.push_back({static_cast<int>(core), foreign});
  }
  return loads;
}

std::vector<CoreLoad> foreign_loads(const comm::Communicator& node, double seconds) {
  auto num_cores = static_cast<std::int64_t>(busy_seconds().size());
  num_cores = node.all_reduce(num_cores, comm::Reduce::max);
  const core::Stopwatch watch;
  const std::vector<double> before = busy_seconds();
  std::vector<double> own = spin(seconds, static_cast<std::size_t>(num_cores));
  std::vector<double> busy = busy_seconds();
  const double passed = watch.seconds();
  node.all_reduce(std::span<double>(own), comm::Reduce::sum);
  if (!node.is_root()) return {};
  busy.resize(own.size(), 0);
  for (std::size_t core = 0; core < busy.size() && core < before.size(); ++core)
    busy[core] -= before[core];
  return foreign_loads(busy, own, passed);
}

}  // namespace finetune::preflight
