// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/detail/beat.hpp"

#include <cstddef>
#include <string>

namespace finetune::comm {
namespace {

template <std::size_t Size>
void put(const std::string& text, std::array<char, Size>& field) {
  text.copy(field.data(), field.size() - 1);
}

}  // namespace

Beat to_beat(const RankState& state) {
  Beat beat;
  for (std::size_t i = 0; i < state.tracks.size(); ++i) {
    const Doing& doing = state.tracks[i];
    Beat::Part& part = beat.parts[i];
    part.step = doing.step;
    part.sequence = doing.sequence;
    part.is_inside = doing.is_inside ? 1 : 0;
    part.seconds = doing.seconds;
    put(doing.collective, part.collective);
    put(doing.axis, part.axis);
    put(doing.work, part.work);
  }
  beat.is_last = state.is_finished ? 1 : 0;
  return beat;
}

RankState to_state(const Beat& beat) {
  RankState state;
  for (std::size_t i = 0; i < state.tracks.size(); ++i) {
    const Beat::Part& part = beat.parts[i];
    state.tracks[i] = {.step = part.step,
                       .sequence = part.sequence,
                       .is_inside = part.is_inside != 0,
                       .collective = part.collective.data(),
                       .axis = part.axis.data(),
                       .seconds = part.seconds,
                       .work = part.work.data()};
  }
  state.is_finished = beat.is_last != 0;
  return state;
}

}  // namespace finetune::comm
