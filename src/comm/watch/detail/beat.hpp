#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a rank says about itself, as it travels to those that judge it.

#include <array>
#include <cstdint>

#include "comm/watch/hang.hpp"

namespace finetune::comm {

/// Of fixed size; longer names are cut.
struct Beat {
  struct Part {
    std::int64_t step = 0;
    std::int64_t sequence = 0;
    std::int64_t is_inside = 0;
    double seconds = 0;
    std::array<char, 24> collective{};
    std::array<char, 24> axis{};
    std::array<char, 64> work{};
  };
  std::array<Part, 2> parts;
  std::int64_t is_last = 0;
};

Beat to_beat(const RankState& state);
RankState to_state(const Beat& beat);

}  // namespace finetune::comm
