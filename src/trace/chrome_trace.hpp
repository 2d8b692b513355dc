#pragma once
// SPDX-License-Identifier: Apache-2.0
// The JSON that Perfetto and chrome://tracing open: a process per rank, a thread per row. Format:
// "Trace Event Format" of the Chromium project.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "trace/recorder.hpp"

namespace finetune::trace {

/// What a rank wrote of some steps. Times of `events` are nanoseconds since `base_ns`.
struct RankTrace {
  int rank = 0;
  int num_ranks = 1;  ///< of the job
  std::int64_t start =
      0;                ///< names this start of the job on all ranks, later ones by larger numbers
  bool on_gpu = false;  ///< it computed there: `events` are when work was handed over
  std::string host = {};
  std::int64_t first_step = 0;  ///< counts from 1
  std::int64_t last_step = 0;
  std::int64_t base_ns = 0;           ///< since 1970, by the clock of the host
  std::vector<Event> events = {};     ///< by their begin, what encloses others first
  std::vector<core::Json> more = {};  ///< of libtorch's profiler, as it writes them
};

/// `about` with what was recorded.
RankTrace trace_of(RankTrace about, Recording recording);

/// Events of libtorch's profiler with processes and arrows of their own for each rank: its numbers
/// of processes (devices, or what the system calls them) and arrows are the same on all ranks.
std::vector<core::Json> of_rank(std::vector<core::Json> events, int rank);

/// A process for each rank; times in microseconds since the earliest base, which
/// "baseTimeNanoseconds" says.
std::string to_chrome_trace(const std::vector<RankTrace>& ranks);

/// What `to_chrome_trace` made of one rank. Throws: ErrorKind::input if it is something else.
RankTrace read_chrome_trace(const std::filesystem::path& path);

/// The newest steps that ranks wrote.
struct Profile {
  std::filesystem::path folder;
  std::vector<RankTrace> ranks = {};         ///< by rank
  std::vector<int> missing = {};             ///< ranks without a trace of these steps
  std::vector<std::string> unreadable = {};  ///< files, and why
};

/// Of `folder`, or of its subfolder profile. Throws: ErrorKind::input if there is none that can be
/// read.
Profile read_profile(const std::filesystem::path& folder);

/// Name of a rank's file: "rank-00003.steps-9-12.json".
std::string file_name(const RankTrace& trace);

}  // namespace finetune::trace
