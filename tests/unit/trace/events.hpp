#pragma once
// SPDX-License-Identifier: Apache-2.0
// Traces as ranks would have written them.

#include <cstdint>
#include <string>

#include "trace/chrome_trace.hpp"

namespace finetune::trace::tests {

inline Event span(const std::string& name, std::int64_t begin_ns, std::int64_t end_ns) {
  return {.row = std::string(main_row), .name = name, .begin_ns = begin_ns, .end_ns = end_ns};
}

/// Of the computing thread, over two ranks.
inline Event collective(std::int64_t number, std::int64_t begin_ns, std::int64_t end_ns,
                        const std::string& row = std::string(main_row),
                        const std::string& axis = "world", int first_rank = 0) {
  return {.row = row,
          .name = "all_reduce " + axis,
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .args = {{"collective", "all_reduce"},
                   {"axis", axis},
                   {"number", number},
                   {"first_rank", first_rank},
                   {"num_ranks", 2},
                   {"queued_us", 0.0},
                   {"bytes", 64},
                   {"subject", "layers.1"}}};
}

inline RankTrace rank(int number, std::int64_t base_ns, std::vector<Event> events) {
  return {.rank = number,
          .host = "node" + std::to_string(number),
          .first_step = 1,
          .last_step = 1,
          .base_ns = base_ns,
          .events = std::move(events)};
}

}  // namespace finetune::trace::tests
