// SPDX-License-Identifier: Apache-2.0
#include "trace/critical_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace finetune::trace {
namespace {

/// Nanoseconds since 1970 of the first rank's clock.
struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  std::int64_t ns() const { return end_ns - begin_ns; }
};

/// A time in which the thread that computes did nothing but wait.
struct Wait {
  Interval when;
  const Event* collective = nullptr;  ///< what it waited for; null: not known
};

struct Work {
  Interval when;
  std::string kind;
};

/// A collective on one of its ranks.
struct Member {
  std::size_t rank = 0;  ///< its index
  const Event* event = nullptr;
  Interval when;
};

/// What a rank did.
struct Line {
  std::vector<Wait> waits;  ///< by their begins, apart
  std::vector<Work> work;   ///< likewise: each moment is that of the innermost span
  std::map<std::string, std::vector<const Event*>>
      streams;  ///< collectives of a row, by their ends
  std::optional<Interval> steps;
};

constexpr std::string_view wait_kind = "wait", wait_prefix = "wait of ", step_kind = "step";
constexpr std::string_view stream_prefix = "stream of ";

/// Two collectives of a stream follow each other at once if no more lies between them.
constexpr std::int64_t at_once_ns = 100'000;

std::string kind_of(const Event& event) {
  return event.name.substr(0, event.name.find_first_of(' '));
}

bool is_wait(const Event& event) {
  return is_collective(event) || kind_of(event) == wait_kind;
}

/// Where an event was, aligned.
Interval at(const RankTrace& rank, const Event& event) {
  return {rank.base_ns + event.begin_ns, rank.base_ns + event.end_ns};
}

/// The collective of a stream that ended last while this rank waited for its axis.
const Event* awaited(const Line& line, const Event& wait) {
  if (!wait.name.starts_with(wait_prefix)) return nullptr;
  const auto stream =
      line.streams.find(std::string(stream_prefix) + wait.name.substr(wait_prefix.size()));
  if (stream == line.streams.end()) return nullptr;
  const auto behind = std::ranges::upper_bound(stream->second, wait.end_ns, {}, &Event::end_ns);
  if (behind == stream->second.begin()) return nullptr;
  const Event* last = *std::prev(behind);
  return last->end_ns < wait.begin_ns ? nullptr : last;
}

/// Cuts spans that lie in each other into what is each one's own.
class OwnTimes {
 public:
  explicit OwnTimes(std::vector<Work>& out) : out_(out) {}

  /// In the order of their begins, what encloses others first. No kind: nobody's work.
  void add(const Interval& when, std::string kind) {
    leave_until(when.begin_ns);
    tell(when.begin_ns);
    open_.push_back({when, std::move(kind)});
  }
  void finish() { leave_until(std::numeric_limits<std::int64_t>::max()); }

 private:
  void leave_until(std::int64_t time_ns) {
    while (!open_.empty() && open_.back().when.end_ns <= time_ns) {
      tell(open_.back().when.end_ns);
      open_.pop_back();
    }
  }
  /// Up to here time was that of the innermost.
  void tell(std::int64_t until_ns) {
    if (!open_.empty() && !open_.back().kind.empty()) {
      const Interval own{std::max(open_.back().when.begin_ns, told_ns_), until_ns};
      if (own.ns() > 0) out_.push_back({own, open_.back().kind});
    }
    told_ns_ = std::max(told_ns_, until_ns);
  }

  std::vector<Work>& out_;
  std::vector<Work> open_;
  std::int64_t told_ns_ = std::numeric_limits<std::int64_t>::min();
};

Line line_of(const RankTrace& rank) {
  Line line;
  for (const Event& event : rank.events)
    if (is_collective(event) && event.row != main_row) line.streams[event.row].push_back(&event);
  for (auto& [row, events] : line.streams)
    std::ranges::stable_sort(events, {}, &Event::end_ns);
  OwnTimes own(line.work);
  for (const Event& event : rank.events) {
    if (event.row != main_row || event.is_counter) continue;
    const Interval when = at(rank, event);
    const std::string kind = kind_of(event);
    if (kind == step_kind) {
      if (!line.steps) line.steps = when;
      line.steps->end_ns = std::max(line.steps->end_ns, when.end_ns);
    }
    own.add(when, is_wait(event) || kind == step_kind ? std::string() : kind);
    // Those inside of others are part of them.
    if (is_wait(event) && (line.waits.empty() || when.begin_ns >= line.waits.back().when.end_ns))
      line.waits.push_back({when, is_collective(event) ? &event : awaited(line, event)});
  }
  own.finish();
  return line;
}

std::string name_of(const Event& collective) {
  return fmt::format("{} {}", collective.args.value("collective", ""),
                     collective.args.value("axis", ""));
}

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

class Walk {
 public:
  explicit Walk(const std::vector<RankTrace>& ranks, std::int64_t least_wait_ns)
      : ranks_(ranks), least_wait_ns_(least_wait_ns) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      lines_.push_back(line_of(ranks[i]));
      for (const Event& event : ranks[i].events)
        if (is_collective(event))
          members_[key_of(event)].push_back({i, &event, at(ranks[i], event)});
    }
  }

  CriticalPath run() {
    for (std::size_t i = 0; i < lines_.size(); ++i)
      for (const Wait& wait : lines_[i].waits)
        note(i, wait);
    const auto begin_and_last = window();
    if (!begin_and_last) return path_;
    begin_ns_ = begin_and_last->first;
    rank_ = begin_and_last->second;
    now_ns_ = lines_[rank_].steps->end_ns;
    path_.seconds = seconds(now_ns_ - begin_ns_);
    while (now_ns_ > begin_ns_)
      if (!go_back()) break;
    return path_;
  }

 private:
  /// From when, and the rank that ended last.
  std::optional<std::pair<std::int64_t, std::size_t>> window() const {
    std::optional<std::pair<std::int64_t, std::size_t>> found;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!lines_[i].steps) continue;
      if (!found) found = {lines_[i].steps->begin_ns, i};
      found->first = std::min(found->first, lines_[i].steps->begin_ns);
      if (lines_[i].steps->end_ns > lines_[found->second].steps->end_ns) found->second = i;
    }
    return found;
  }

  /// The last that began before; of one that goes on, what lies before.
  std::optional<Wait> last_wait() const {
    const auto& waits = lines_[rank_].waits;
    const auto after = std::ranges::lower_bound(
        waits, now_ns_, {}, [](const Wait& wait) { return wait.when.begin_ns; });
    if (after == waits.begin()) return std::nullopt;
    Wait last = *std::prev(after);
    last.when.end_ns = std::min(last.when.end_ns, now_ns_);
    return last;
  }

  /// From the thread that computes to what it waited for. False: there was nothing.
  bool go_back() {
    const std::optional<Wait> wait = last_wait();
    const std::int64_t worked_from = wait ? wait->when.end_ns : begin_ns_;
    add_work({std::max(begin_ns_, worked_from), now_ns_});
    now_ns_ = worked_from;
    if (!wait) return false;
    if (wait->collective == nullptr) {
      move_to(wait->when.begin_ns, "waiting for what no span tells");
    } else {
      through(*wait->collective, wait->when.begin_ns);
    }
    return true;
  }

  /// Through a collective, and through those before it that kept its stream busy.
  void through(const Event& collective, std::int64_t wait_begin_ns) {
    const Event* event = &collective;
    while (event != nullptr && now_ns_ > begin_ns_) {
      const Member& last = last_to_come(*event);
      // It had begun everywhere before this rank came to wait: it was only not over yet.
      const bool has_progress = last.when.begin_ns < now_ns_;
      move_to(has_progress ? last.when.begin_ns : std::min(wait_begin_ns, now_ns_ - 1),
              name_of(*event));
      rank_ = last.rank;
      event = has_progress ? before_at_once(last) : nullptr;
    }
  }

  /// What a collective waited for on its stream, though it had been asked for.
  const Event* before_at_once(const Member& of) const {
    if (of.event->row == main_row) return nullptr;
    if (of.event->args.value("queued_us", 0.0) * 1e3 < at_once_ns) return nullptr;
    const auto& stream = lines_[of.rank].streams.at(of.event->row);
    const auto behind = std::ranges::upper_bound(stream, of.event->begin_ns, {}, &Event::end_ns);
    if (behind == stream.begin()) return nullptr;
    const Event* before = *std::prev(behind);
    return of.event->begin_ns - before->end_ns < at_once_ns ? before : nullptr;
  }

  const Member& last_to_come(const Event& collective) const {
    return *std::ranges::max_element(members_.at(key_of(collective)), {},
                                     [](const Member& each) { return each.when.begin_ns; });
  }

  void move_to(std::int64_t time_ns, const std::string& by) {
    const std::int64_t from_ns = std::max(begin_ns_, time_ns);
    if (now_ns_ > from_ns) path_.collectives_s[by] += seconds(now_ns_ - from_ns);
    now_ns_ = std::min(now_ns_, time_ns);
  }

  void add_work(const Interval& when) {
    std::int64_t left = std::max<std::int64_t>(0, when.ns());
    auto& of_rank = path_.work_s[ranks_[rank_].rank];
    const auto& work = lines_[rank_].work;
    auto each = std::ranges::upper_bound(work, when.begin_ns, {},
                                         [](const Work& own) { return own.when.end_ns; });
    for (; each != work.end() && each->when.begin_ns < when.end_ns; ++each) {
      const std::int64_t common =
          std::min(each->when.end_ns, when.end_ns) - std::max(each->when.begin_ns, when.begin_ns);
      if (common <= 0) continue;
      of_rank[each->kind] += seconds(common);
      left -= common;
    }
    if (left > 0) of_rank["other"] += seconds(left);
  }

  /// Of what clocks that differ could make of nothing nobody is accused.
  void note(std::size_t rank, const Wait& wait) {
    if (wait.collective == nullptr) return;
    const Member& last = last_to_come(*wait.collective);
    const std::int64_t came_ns =
        std::max(wait.when.begin_ns, ranks_[rank].base_ns + wait.collective->begin_ns);
    const std::int64_t waited_ns = std::min(last.when.begin_ns, wait.when.end_ns) - came_ns;
    if (last.rank == rank || waited_ns <= least_wait_ns_ ||
        seconds(waited_ns) <= path_.longest_wait.seconds)
      return;
    path_.longest_wait = {seconds(waited_ns), ranks_[rank].rank, ranks_[last.rank].rank,
                          name_of(*wait.collective), wait.collective->args.value("subject", "")};
  }

  const std::vector<RankTrace>& ranks_;
  std::int64_t least_wait_ns_;
  std::vector<Line> lines_;  ///< by index of the rank
  std::map<CollectiveKey, std::vector<Member>> members_;
  CriticalPath path_;
  // Where the walk is.
  std::int64_t begin_ns_ = 0;
  std::int64_t now_ns_ = 0;
  std::size_t rank_ = 0;
};

double sum_of(const std::map<std::string, double>& parts) {
  double sum = 0;
  for (const auto& [name, value] : parts)
    sum += value;
  return sum;
}

/// Largest first: "backward 1.310 s, forward 0.690 s".
std::string list(const std::map<std::string, double>& parts) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, value] : parts)
    sorted.emplace_back(-value, name);
  std::ranges::sort(sorted);
  std::string text;
  for (const auto& [value, name] : sorted)
    text += fmt::format("{}{} {:.4f} s", text.empty() ? "" : ", ", name, -value);
  return text;
}

}  // namespace

CriticalPath critical_path(const std::vector<RankTrace>& ranks, const Alignment& alignment) {
  return Walk(ranks, std::llround(alignment.left_us * 1e3)).run();
}

std::string describe(const CriticalPath& path, const std::vector<RankTrace>& ranks,
                     const Alignment& alignment) {
  std::map<int, std::string> hosts;
  std::int64_t first = ranks.front().first_step, last = ranks.front().last_step;
  for (const RankTrace& rank : ranks) {
    hosts[rank.rank] = rank.host;
    first = std::min(first, rank.first_step);
    last = std::max(last, rank.last_step);
  }
  std::string text =
      fmt::format("{} ranks, steps {} to {}: {:.4f} s\n", ranks.size(), first, last, path.seconds);
  if (alignment.num_collectives > 0)
    text += fmt::format(
        "clocks were {:.0f} us apart at most; by {} collectives they agree to {:.0f} us\n",
        alignment.largest_shift_us, alignment.num_collectives, alignment.left_us);
  for (const int rank : alignment.alone)
    text +=
        fmt::format("rank {} shares no collective with the others: its clock is as it was\n", rank);
  if (ranks.front().on_gpu)
    text +=
        "the ranks computed on GPUs: this is the path of the threads that handed out the work, not "
        "of "
        "the GPUs\n";
  text += "critical path:\n";
  // The longest parts first.
  std::vector<std::tuple<double, std::string, std::string>> lines;
  for (const auto& [rank, parts] : path.work_s)
    lines.emplace_back(-sum_of(parts), fmt::format("rank {} on {} works", rank, hosts[rank]),
                       list(parts));
  for (const auto& [name, value] : path.collectives_s)
    lines.emplace_back(-value, name, "");
  std::ranges::sort(lines);
  for (const auto& [value, name, parts] : lines)
    text += fmt::format("  {:>9.4f} s {:>4.0f} %  {}{}{}\n", -value,
                        path.seconds > 0 ? -100 * value / path.seconds : 0, name,
                        parts.empty() ? "" : ": ", parts);
  const LongestWait& wait = path.longest_wait;
  if (wait.seconds > 0)
    text += fmt::format("longest wait: rank {} for rank {} on {}, {:.4f} s, in {}{}{}\n", wait.rank,
                        wait.for_rank, hosts[wait.for_rank], wait.seconds, wait.collective,
                        wait.subject.empty() ? "" : " of ", wait.subject);
  return text;
}

}  // namespace finetune::trace
