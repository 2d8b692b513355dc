// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/flight_records.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>

#include "comm/watch/flight_recorder.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"

namespace finetune::comm {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_record_bytes = std::int64_t{16} << 20;
/// Between two collectives of a run that moves less time passes.
constexpr double shortest_wait_s = 1;
constexpr std::size_t most_missing = 8;

Doing to_doing(const core::Json& json) {
  return {.step = json.at("step").get<std::int64_t>(),
          .sequence = json.at("sequence").get<std::int64_t>(),
          .is_inside = json.at("inside").get<bool>(),
          .collective = json.at("collective").get<std::string>(),
          .axis = json.at("axis").get<std::string>(),
          .seconds = json.at("seconds").get<double>(),
          .work = json.at("work").get<std::string>()};
}

RankState to_state(const core::Json& json, double silent_s) {
  RankState state;
  state.tracks = {to_doing(json.at("main")), to_doing(json.at("stream"))};
  state.silent_s = silent_s;
  return state;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("rank-") &&
        entry.path().extension() == ".jsonl")
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

class Reader {
 public:
  void read(const fs::path& file) {
    const std::string text = core::read_text(file, largest_record_bytes);
    std::size_t begin = 0;
    for (std::int64_t line = 1; begin < text.size(); ++line) {
      // The rest may have been cut off.
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      if (!take(core::parse_json(std::string_view(text).substr(begin, end - begin), file.string(),
                                 line),
                file))
        return;
      begin = end + 1;
    }
  }

  FlightRecords records() && {
    for (std::size_t rank = 0; rank < records_.ranks.size(); ++rank) {
      if (known_at_s_[rank] > 0) continue;
      records_.ranks[rank].is_finished = true;
      records_.missing.push_back(static_cast<int>(rank));
    }
    return std::move(records_);
  }

 private:
  /// Whether lines on ranks may follow.
  bool take(const core::Json& json, const fs::path& file) {
    try {
      if (json.contains("rank")) {
        make_room(json.at("num_ranks").get<std::size_t>());
        const auto rank = json.at("rank").get<std::size_t>();
        written_at_s_ = json.at("unix_s").get<double>();
        records_.reasons.at(rank) = json.at("reason").get<std::string>();
        records_.written_at_s.at(rank) = written_at_s_;
        learn(rank, json, 0);
        return true;
      }
      if (!json.contains("heard")) return false;
      learn(json.at("heard").get<std::size_t>(), json, json.at("silent_s").get<double>());
      return true;
    } catch (const std::exception& error) {
      core::fail(core::ErrorKind::input,
                 {file.string(), "is no flight record of this program", error.what(),
                  "Name the folder flight in the output folder of a run."});
    }
  }

  /// What was so `silent_s` before the file was written, unless something newer is known.
  void learn(std::size_t rank, const core::Json& json, double silent_s) {
    double& known_at_s = known_at_s_.at(rank);
    if (known_at_s >= written_at_s_ - silent_s) return;
    known_at_s = written_at_s_ - silent_s;
    records_.ranks.at(rank) = to_state(json, silent_s);
    records_.hosts.at(rank) = json.at("host").get<std::string>();
  }

  void make_room(std::size_t num_ranks) {
    constexpr std::size_t most_ranks = std::size_t{1} << 20;
    core::check(num_ranks > 0 && num_ranks <= most_ranks, "a job has ranks");
    if (records_.ranks.size() >= num_ranks) return;
    records_.ranks.resize(num_ranks);
    records_.hosts.resize(num_ranks, "an unknown node");
    records_.reasons.resize(num_ranks);
    records_.written_at_s.resize(num_ranks, 0);
    known_at_s_.resize(num_ranks, 0);
  }

  FlightRecords records_;
  double written_at_s_ = 0;         ///< of the file that is read
  std::vector<double> known_at_s_;  ///< by rank; 0: nothing is known
};

/// Of the two tracks, whose counts have nothing to do with each other, the one that is inside a
/// collective; else the one that did something last.
const Doing& newest(const RankState& state) {
  const auto [main, stream] = std::tie(state.tracks[0], state.tracks[1]);
  if (main.sequence == 0 || stream.sequence == 0) return main.sequence == 0 ? stream : main;
  if (main.is_inside != stream.is_inside) return main.is_inside ? main : stream;
  return stream.seconds < main.seconds ? stream : main;
}

/// "in step 3, ...", "before the first step".
std::string where(const RankState& state) {
  const Doing& main = state.tracks[0];
  const Doing& last = newest(state);
  std::string text = main.step > 0 ? fmt::format("in step {}", main.step) : "before the first step";
  if (!main.work.empty()) text += fmt::format(", {}", main.work);
  if (last.sequence > 0)
    text += fmt::format(", {} {} on {}", last.is_inside ? "inside" : "after", last.collective,
                        last.axis);
  return text;
}

std::string name(const FlightRecords& records, std::size_t rank) {
  return fmt::format("rank {} on {}", rank, records.hosts[rank]);
}

/// Who ended the job by an error of its own.
std::string describe_end(const FlightRecords& records, std::size_t rank) {
  return fmt::format("{} ended the job: {}\nit was {}", name(records, rank), records.reasons[rank],
                     where(records.ranks[rank]));
}

std::string describe_calm(const FlightRecords& records) {
  const auto known =
      std::ranges::find_if(records.ranks, [](const RankState& rank) { return !rank.is_finished; });
  const auto rank = static_cast<std::size_t>(known - records.ranks.begin());
  return fmt::format(
      "no rank had waited for longer than {:.0f} s when this was written ({})\n"
      "{} was {}",
      shortest_wait_s, records.reasons[rank], name(records, rank), where(*known));
}

}  // namespace

FlightRecords read_flight_records(const fs::path& folder) {
  std::vector<fs::path> files = files_in(folder / flight_folder_name);
  if (files.empty()) files = files_in(folder);
  const bool are_of_earlier_start = files.empty();
  if (files.empty()) files = files_in(folder / earlier_flight_folder_name);
  if (files.empty())
    core::fail(
        core::ErrorKind::input,
        {folder.string(), "holds no flight records",
         "a run writes them to the folder flight of train.output when it hangs or fails, and "
         "on SIGUSR2",
         "Name the output folder of such a run, or send SIGUSR2 to its ranks."});
  Reader reader;
  for (const fs::path& file : files)
    reader.read(file);
  FlightRecords records = std::move(reader).records();
  records.are_of_earlier_start = are_of_earlier_start;
  return records;
}

namespace {

/// The rank whose error came first; others may have met what followed.
std::optional<std::size_t> first_failed(const FlightRecords& records) {
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < records.reasons.size(); ++rank) {
    const std::string& reason = records.reasons[rank];
    const bool is_error = !reason.empty() && reason != asked_by_signal &&
                          reason != asked_by_watchdog && !reason.starts_with(asked_by_rank);
    if (is_error && (!first || records.written_at_s[rank] < records.written_at_s[*first]))
      first = rank;
  }
  return first;
}

std::string describe_missing(const std::vector<int>& missing) {
  const std::size_t listed = std::min(missing.size(), most_missing);
  return fmt::format(
      "; no record of rank{} {}{}", missing.size() == 1 ? "" : "s",
      fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(listed), ", "),
      missing.size() > listed ? fmt::format(" and {} more", missing.size() - listed) : "");
}

}  // namespace

std::string describe(const FlightRecords& records) {
  std::string text;
  if (const auto failed = first_failed(records))
    text = describe_end(records, *failed);
  else if (const auto message = judge(records.ranks, records.hosts, shortest_wait_s))
    text = fmt::format("{}: {}\n{}", message->where, message->problem, message->why);
  else
    text = describe_calm(records);
  if (!records.missing.empty()) text += describe_missing(records.missing);
  if (records.are_of_earlier_start) text += "; from an earlier start: the last one left no records";
  return text;
}

}  // namespace finetune::comm
