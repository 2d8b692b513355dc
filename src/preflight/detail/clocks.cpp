// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/clocks.hpp"

#include <chrono>
#include <limits>
#include <span>

#include "core/clock.hpp"

namespace finetune::preflight {
namespace {

constexpr int num_questions = 5;

struct Answer {
  double clock_s = 0;
  double offset_s = 0;  ///< of who answers
};

/// Answers what rank `asking` asks.
void answer(const comm::Communicator& leaders, int asking, double own_offset_s,
            const std::function<double()>& clock) {
  for (int i = 0; i < num_questions; ++i) {
    char question = 0;
    leaders.pass({}, -1, std::as_writable_bytes(std::span(&question, 1)), asking);
    const Answer told{clock(), own_offset_s};
    leaders.pass(std::as_bytes(std::span(&told, 1)), asking, {}, -1);
  }
}

/// Asks rank `knowing`; returns the offset of this rank's clock.
double ask(const comm::Communicator& leaders, int knowing, const std::function<double()>& clock) {
  double shortest = std::numeric_limits<double>::max();
  double offset = 0;
  for (int i = 0; i < num_questions; ++i) {
    const core::Stopwatch watch;
    const char question = 0;
    Answer told;
    leaders.pass(std::as_bytes(std::span(&question, 1)), knowing, {}, -1);
    leaders.pass({}, -1, std::as_writable_bytes(std::span(&told, 1)), knowing);
    const double way = watch.seconds();
    const double now = clock();
    if (way >= shortest) continue;
    shortest = way;
    offset = now - way / 2 - told.clock_s + told.offset_s;
  }
  return offset;
}

}  // namespace

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double clock_offset_s(const comm::Communicator& leaders, const std::function<double()>& clock) {
  const int rank = leaders.rank();
  double offset = 0;
  // Ranks below `known` know; each of them tells the one that is `known` further on.
  for (int known = 1; known < leaders.size(); known *= 2) {
    if (rank < known && rank + known < leaders.size()) {
      answer(leaders, rank + known, offset, clock);
    } else if (rank >= known && rank < 2 * known) {
      offset = ask(leaders, rank - known, clock);
    }
  }
  return offset;
}

}  // namespace finetune::preflight
