// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/hang.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace finetune::comm {
namespace {

constexpr std::size_t most_listed = 8;
constexpr std::array tracks = {Track::main, Track::stream};

const Doing& on(const RankState& rank, Track track) {
  return rank.tracks[static_cast<std::size_t>(track)];
}

/// Whether a thread waits for files.
bool is_at_files(const Doing& doing) {
  return doing.work.starts_with(fmt::format("{} of ", reading_files)) ||
         doing.work.starts_with(fmt::format("{} of ", writing_files));
}

std::string where_in(const Doing& doing) {
  return fmt::format("{} on {}", doing.collective, doing.axis);
}

/// The case of one track: a rank that has waited too long, and those it may be waiting for.
struct Case {
  Track track;
  std::size_t waiter;
  std::size_t num_waiting = 0;
  std::vector<std::size_t> late = {};  ///< silent, or behind and not waiting for anybody themselves
  std::vector<std::size_t> behind_but_waiting = {};

  /// How much it explains.
  int told() const { return !late.empty() ? 2 : !behind_but_waiting.empty() ? 1 : 0; }
};

class Judge {
 public:
  Judge(std::span<const RankState> ranks, std::span<const std::string> hosts, double timeout_s)
      : ranks_(ranks), hosts_(hosts), timeout_s_(timeout_s) {}

  std::optional<Case> look_at(Track track) const {
    std::optional<Case> found;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      const Doing& doing = on(state, track);
      if (state.is_finished || is_silent(state, timeout_s_)) continue;
      if (!doing.is_inside || doing.seconds <= timeout_s_) continue;
      if (!found) found = Case{.track = track, .waiter = rank};
      ++found->num_waiting;
      // Whoever entered fewest collectives is nearest to what holds up all others.
      if (doing.sequence < on(ranks_[found->waiter], track).sequence) found->waiter = rank;
    }
    if (found) find_late(*found);
    return found;
  }

  core::Message tell(const Case& found) const {
    const Doing& doing = on(ranks_[found.waiter], found.track);
    core::Message message;
    message.where = doing.step > 0 ? fmt::format("step {}", doing.step) : "before the first step";
    message.why = waited(found, doing);
    const std::string silence = "Look at the nodes of the ranks named, and at their output";
    const std::string patience = "raise train.hang_timeout_s if such a wait is normal here.";
    if (are_at_files(found.late)) {
      message.problem = list(found.late, "busy with files");
      message.remedy = fmt::format(
          "There is much to read, or the file system is slow or does not answer: look at the one "
          "that holds these files; {}",
          patience);
    } else if (!found.late.empty()) {
      message.problem = list(found.late, fmt::format("late in {}", where_in(doing)));
      message.remedy = fmt::format("{}; {}", silence, patience);
    } else if (!found.behind_but_waiting.empty()) {
      message.problem =
          list(found.behind_but_waiting, fmt::format("missing in {}", where_in(doing)));
      message.remedy = fmt::format(
          "Ranks wait for each other in different collectives: either the network lost a message, "
          "or the program is wrong and should be reported; {}",
          patience);
    } else {
      message.problem = fmt::format("{} does not finish, though no rank is late", where_in(doing));
      message.remedy = fmt::format(
          "It is the network: look at its links, and at both ends of them; {}", patience);
    }
    return message;
  }

 private:
  void find_late(Case& found) const {
    const std::int64_t sequence = on(ranks_[found.waiter], found.track).sequence;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      if (state.is_finished) continue;
      if (is_silent(state, timeout_s_)) {
        found.late.push_back(rank);
      } else if (on(state, found.track).sequence < sequence) {
        (is_waiting(state) ? found.behind_but_waiting : found.late).push_back(rank);
      }
    }
  }

  /// Whether all of them answer, and none does anything else.
  bool are_at_files(const std::vector<std::size_t>& which) const {
    return !which.empty() && std::ranges::all_of(which, [&](std::size_t rank) {
      return !is_silent(ranks_[rank], timeout_s_) && !is_waiting(ranks_[rank]) &&
             is_at_files(on(ranks_[rank], Track::main));
    });
  }

  static bool is_waiting(const RankState& state) {
    return std::any_of(state.tracks.begin(), state.tracks.end(),
                       [](const Doing& doing) { return doing.is_inside; });
  }

  std::string name(std::size_t rank) const {
    return fmt::format("rank {} on {}", rank, hosts_[rank]);
  }

  /// "it does not answer ...", "it is inside ...", "it computes ...".
  std::string describe(std::size_t rank) const {
    const RankState& state = ranks_[rank];
    if (is_silent(state, timeout_s_)) {
      return fmt::format("no answer for {:.0f} s, stopped or its node is dead", state.silent_s);
    }
    for (const Doing& doing : state.tracks) {
      if (doing.is_inside)
        return fmt::format("inside {} for {:.0f} s", where_in(doing), doing.seconds);
    }
    const Doing& main = on(state, Track::main);
    const Doing& stream = on(state, Track::stream);
    const Doing& last = stream.sequence > 0 && (main.sequence == 0 || stream.seconds < main.seconds)
                            ? stream
                            : main;
    if (is_at_files(main)) return fmt::format("{} for {:.0f} s", main.work, last.seconds);
    if (last.sequence == 0) return "busy without any collective so far";
    return fmt::format("busy for {:.0f} s in {}step {} since {}", last.seconds,
                       main.work.empty() ? std::string() : main.work + " of ", last.step,
                       where_in(last));
  }

  /// "rank 1 on a is late in all_gather on fsdp: no answer ..." or "ranks are late ...: rank 1
  /// ...".
  std::string list(const std::vector<std::size_t>& which, const std::string& state) const {
    if (which.size() == 1) {
      return fmt::format("{} is {}: {}", name(which[0]), state, describe(which[0]));
    }
    std::string text = fmt::format("{} ranks are {}: ", which.size(), state);
    const std::size_t listed = std::min(which.size(), most_listed);
    for (std::size_t i = 0; i < listed; ++i) {
      text += fmt::format("{}{}: {}", i == 0 ? "" : "; ", name(which[i]), describe(which[i]));
    }
    if (which.size() > listed) text += fmt::format("; and {} more", which.size() - listed);
    return text;
  }

  std::string waited(const Case& found, const Doing& doing) const {
    std::string text =
        fmt::format("{} has been inside it for {:.0f} s", name(found.waiter), doing.seconds);
    if (found.num_waiting > 1) {
      text += fmt::format(", {} other rank{} too long as well", found.num_waiting - 1,
                          found.num_waiting == 2 ? "" : "s");
    }
    return text;
  }

  std::span<const RankState> ranks_;
  std::span<const std::string> hosts_;
  double timeout_s_;
};

}  // namespace

bool is_silent(const RankState& rank, double timeout_s) {
  return !rank.is_finished && rank.silent_s > timeout_s / 2;
}

std::optional<core::Message> judge(std::span<const RankState> ranks,
                                   std::span<const std::string> hosts, double timeout_s) {
  const Judge judge(ranks, hosts, timeout_s);
  std::optional<Case> best;
  for (const Track track : tracks) {
    const auto found = judge.look_at(track);
    if (found && (!best || found->told() > best->told())) best = found;
  }
  if (!best) return std::nullopt;
  return judge.tell(*best);
}

}  // namespace finetune::comm
