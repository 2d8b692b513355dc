// SPDX-License-Identifier: Apache-2.0
#include "core/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <memory>
#include <system_error>

namespace finetune::core {

std::vector<int> parse_list(std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (!part.empty() && std::isspace(static_cast<unsigned char>(part.front())) != 0)
      part.remove_prefix(1);
    int first = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), first);
    if (error != std::errc()) continue;
    int last = first;
    if (end != part.data() + part.size() && *end == '-')
      std::from_chars(end + 1, part.data() + part.size(), last);
    for (int number = first; number <= last; ++number)
      numbers.push_back(number);
  }
  return numbers;
}

/// The system refuses a mask that is smaller than its own, which may hold more than the 1,024 cores
/// of a cpu_set_t.
std::vector<int> own_cores() {
  constexpr int most_cores = 1 << 20;
  std::vector<int> cores;
  for (int num_cores = CPU_SETSIZE; num_cores <= most_cores; num_cores *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(num_cores);
    const auto free_mask = [](cpu_set_t* mask) { CPU_FREE(mask); };
    const std::unique_ptr<cpu_set_t, decltype(free_mask)> mask(CPU_ALLOC(num_cores), free_mask);
    if (!mask) return cores;
    CPU_ZERO_S(bytes, mask.get());
    if (::sched_getaffinity(0, bytes, mask.get()) != 0) {
      if (errno == EINVAL) continue;
      return cores;
    }
    for (int core = 0; core < num_cores; ++core)
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.get())) cores.push_back(core);
    return cores;
  }
  return cores;
}

}  // namespace finetune::core
