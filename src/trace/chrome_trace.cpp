// SPDX-License-Identifier: Apache-2.0
#include "trace/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"

namespace finetune::trace {
namespace {

constexpr std::int64_t largest_file = std::int64_t{1} << 32;

/// Each row of a rank has a number, the main one the first.
class Rows {
 public:
  Rows() { number(std::string(main_row)); }
  int number(const std::string& row) {
    return numbers_.try_emplace(row, static_cast<int>(numbers_.size())).first->second;
  }
  const std::map<std::string, int>& all() const { return numbers_; }

 private:
  std::map<std::string, int> numbers_;
};

std::string line_of_name(const char* what, int rank, int row, const std::string& name) {
  return fmt::format(R"({{"name": "{}", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
                     what, rank, row, core::Json(name).dump());
}

double microseconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

std::string line_of(const Event& event, int rank, int row, std::int64_t shift_ns) {
  const std::string args = event.args.is_null() ? "{}" : event.args.dump();
  const std::string name = core::Json(event.name).dump();
  const double begin = microseconds(event.begin_ns + shift_ns);
  if (event.is_counter)
    return fmt::format(
        R"({{"name": {}, "ph": "C", "pid": {}, "tid": {}, "ts": {:.3f}, "args": {}}})", name, rank,
        row, begin, args);
  return fmt::format(
      R"({{"name": {}, "ph": "X", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {}}})",
      name, rank, row, begin, microseconds(event.end_ns - event.begin_ns), args);
}

void add_lines(const RankTrace& of, std::int64_t base_ns, std::vector<std::string>& lines) {
  const std::string name = fmt::format("rank {}", of.rank);
  lines.push_back(
      line_of_name("process_name", of.rank, 0, of.host.empty() ? name : name + " on " + of.host));
  const std::int64_t shift_ns = of.base_ns - base_ns;
  Rows rows;
  for (const Event& event : of.events)
    lines.push_back(line_of(event, of.rank, rows.number(event.row), shift_ns));
  for (const auto& [row, number] : rows.all())
    lines.push_back(line_of_name("thread_name", of.rank, number, row));
  for (core::Json each : of.more) {
    if (each.contains("ts")) each["ts"] = each["ts"].get<double>() + microseconds(shift_ns);
    lines.push_back(each.dump());
  }
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& found) {
  core::fail(
      core::ErrorKind::input,
      {path.string(), "is no trace of a rank", found,
       "Name the output folder of a run with [profile], or the folder that profile.dir names."});
}

std::int64_t ns_in(const core::Json& event, const char* key) {
  return std::llround(event.at(key).get<double>() * 1e3);
}

/// Rows by their numbers.
std::map<int, std::string> rows_of(const core::Json& events, int rank) {
  std::map<int, std::string> rows;
  for (const core::Json& each : events)
    if (each.value("ph", "") == "M" && each.value("name", "") == "thread_name" &&
        each.contains("pid") && each["pid"] == rank)
      rows[each.at("tid").get<int>()] = each.at("args").at("name").get<std::string>();
  return rows;
}

/// What reads a collective takes for granted. Throws: core::Json::exception.
void require_whole(const Event& event) {
  if (!event.args.is_object() || !event.args.contains("collective")) return;
  for (const char* key : {"collective", "axis", "subject"})
    static_cast<void>(event.args.at(key).get_ref<const std::string&>());
  for (const char* key : {"first_rank", "num_ranks", "number", "queued_us"})
    static_cast<void>(event.args.at(key).get<double>());
}

RankTrace parsed(const core::Json& file) {
  const core::Json& own = file.at("finetune").at(0);
  RankTrace trace{.rank = own.at("rank").get<int>(),
                  .num_ranks = own.at("num_ranks").get<int>(),
                  .start = own.at("start").get<std::int64_t>(),
                  .on_gpu = own.at("on_gpu").get<bool>(),
                  .host = own.at("host").get<std::string>(),
                  .first_step = own.at("first_step").get<std::int64_t>(),
                  .last_step = own.at("last_step").get<std::int64_t>(),
                  .base_ns = file.at("baseTimeNanoseconds").get<std::int64_t>()};
  const core::Json& events = file.at("traceEvents");
  const auto rows = rows_of(events, trace.rank);
  for (const core::Json& each : events) {
    const std::string kind = each.value("ph", "");
    const bool is_own = each.contains("pid") && each["pid"] == trace.rank;
    if (is_own && kind == "M") continue;
    if (!is_own || (kind != "X" && kind != "C")) {
      trace.more.push_back(each);
      continue;
    }
    const std::int64_t begin_ns = ns_in(each, "ts");
    trace.events.push_back({.row = rows.at(each.at("tid").get<int>()),
                            .name = each.at("name").get<std::string>(),
                            .begin_ns = begin_ns,
                            .end_ns = kind == "C" ? begin_ns : begin_ns + ns_in(each, "dur"),
                            .args = each.value("args", core::Json()),
                            .is_counter = kind == "C"});
    require_whole(trace.events.back());
  }
  return trace;
}

/// "rank-00003.steps-9-12.json", and nothing that is only like it.
bool is_file_of_rank(const std::filesystem::path& path) {
  static const std::regex pattern("rank-[0-9]+\\.steps-[0-9]+-[0-9]+\\.json");
  return std::regex_match(path.filename().string(), pattern);
}

/// Of those that can be read.
std::vector<RankTrace> all_traces(const std::filesystem::path& folder,
                                  std::vector<std::string>& unreadable) {
  std::vector<RankTrace> traces;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!is_file_of_rank(entry->path())) continue;
    try {
      traces.push_back(read_chrome_trace(entry->path()));
    } catch (const core::Error& problem) {
      unreadable.emplace_back(problem.what());
    }
  }
  return traces;
}

}  // namespace

std::vector<core::Json> of_rank(std::vector<core::Json> events, int rank) {
  // Far from ranks, and from those of other ranks.
  constexpr std::int64_t of_each_rank = 1000, behind_ranks = 1'000'000'000;
  std::map<std::string, std::int64_t> processes;
  for (core::Json& each : events) {
    if (!each.is_object()) continue;
    if (const auto pid = each.find("pid"); pid != each.end()) {
      const auto number = std::ssize(processes);
      *pid = behind_ranks + rank * of_each_rank +
             processes.try_emplace(pid->dump(), number).first->second;
    }
    if (const auto id = each.find("id"); id != each.end())
      *id = fmt::format("rank {}: {}", rank, id->is_string() ? id->get<std::string>() : id->dump());
    const bool names_process =
        each.value("ph", "") == "M" && each.value("name", "") == "process_name";
    if (names_process && each.contains("args") && each["args"].is_object())
      each["args"]["name"] =
          fmt::format("rank {}: {}", rank, each["args"].value("name", std::string("libtorch")));
  }
  return events;
}

RankTrace trace_of(RankTrace about, Recording recording) {
  about.base_ns = recording.since_1970_ns;
  about.events = std::move(recording.events);
  for (Event& event : about.events) {
    event.begin_ns -= recording.since_ns;
    event.end_ns -= recording.since_ns;
  }
  return about;
}

std::string to_chrome_trace(const std::vector<RankTrace>& ranks) {
  std::int64_t base_ns = ranks.empty() ? 0 : ranks.front().base_ns;
  for (const RankTrace& each : ranks)
    base_ns = std::min(base_ns, each.base_ns);
  core::Json about = core::Json::array();
  std::vector<std::string> lines;
  for (const RankTrace& each : ranks) {
    about.push_back({{"rank", each.rank},
                     {"num_ranks", each.num_ranks},
                     {"start", each.start},
                     {"on_gpu", each.on_gpu},
                     {"host", each.host},
                     {"first_step", each.first_step},
                     {"last_step", each.last_step}});
    add_lines(each, base_ns, lines);
  }
  std::string text = fmt::format(
      "{{\"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": {},\n\"finetune\": {},\n"
      "\"traceEvents\": [\n",
      base_ns, about.dump());
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += lines[i] + (i + 1 < lines.size() ? ",\n" : "\n");
  return text + "]}\n";
}

RankTrace read_chrome_trace(const std::filesystem::path& path) {
  try {
    return parsed(core::Json::parse(core::read_text(path, largest_file)));
  } catch (const core::Json::exception& error) {
    refuse(path, error.what());
  } catch (const std::out_of_range&) {
    refuse(path, "an event of a row without a name");
  }
}

Profile read_profile(const std::filesystem::path& folder) {
  const auto inside = folder / "profile";
  Profile profile{.folder = std::filesystem::is_directory(inside) ? inside : folder};
  std::vector<RankTrace> traces = all_traces(profile.folder, profile.unreadable);
  if (traces.empty())
    refuse(profile.folder,
           profile.unreadable.empty() ? "no file rank-*.json" : profile.unreadable.front());
  // A rank that was killed has none of the newest; those of an earlier start say nothing of this.
  const auto age = [](const RankTrace& trace) {
    return std::tuple(trace.start, trace.last_step, trace.first_step);
  };
  const auto newest = age(*std::ranges::max_element(traces, {}, age));
  std::erase_if(traces, [&](const RankTrace& trace) { return age(trace) != newest; });
  std::ranges::sort(traces, {}, &RankTrace::rank);
  profile.ranks = std::move(traces);
  constexpr int most_named = 100'000;
  for (int rank = 0; rank < std::min(profile.ranks.front().num_ranks, most_named); ++rank)
    if (std::ranges::find(profile.ranks, rank, &RankTrace::rank) == profile.ranks.end())
      profile.missing.push_back(rank);
  return profile;
}

std::string file_name(const RankTrace& trace) {
  return fmt::format("rank-{:05}.steps-{}-{}.json", trace.rank, trace.first_step, trace.last_step);
}

}  // namespace finetune::trace
