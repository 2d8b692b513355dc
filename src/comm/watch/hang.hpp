#pragma once
// SPDX-License-Identifier: Apache-2.0
// The watchdog's judgement: who is late, from what every rank last said about itself.

#include <array>
#include <optional>
#include <span>
#include <string>

#include "comm/activity.hpp"
#include "core/error.hpp"

namespace finetune::comm {

/// Kinds of Activity::Work in which a rank waits for a file system: "reading of the data".
inline constexpr const char* reading_files = "reading";
inline constexpr const char* writing_files = "writing";

/// What is known about one rank.
struct RankState {
  std::array<Doing, 2> tracks;  ///< main and stream, when it last said
  double silent_s = 0;          ///< since then
  bool is_finished = false;     ///< it has nothing left to do: neither silent nor late
};

/// The message for the user if a rank has been inside a collective for longer than `timeout_s`: the
/// ranks that keep it waiting, or that none does and the network is at fault. Nothing while
/// everybody moves, or is busy without anyone waiting. Shapes: ranks, hosts [world size].
std::optional<core::Message> judge(std::span<const RankState> ranks,
                                   std::span<const std::string> hosts, double timeout_s);

/// Whether it has said nothing for so long that it must be stopped or cut off.
bool is_silent(const RankState& rank, double timeout_s);

}  // namespace finetune::comm
