// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>

#include "comm/watch/flight_records.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "trace/critical_path.hpp"

namespace finetune::app {
namespace {

int merge(const Arguments& arguments) {
  trace::Profile profile = trace::read_profile(arguments.path);
  std::vector<trace::RankTrace>& ranks = profile.ranks;
  for (const std::string& problem : profile.unreadable)
    log::warn("left out: " + problem);
  const trace::Alignment alignment = trace::align_clocks(ranks);
  const std::filesystem::path file = arguments.second.empty()
                                         ? profile.folder / "merged.json"
                                         : std::filesystem::path(arguments.second);
  core::write_text_atomically(file, trace::to_chrome_trace(ranks));
  const std::string text =
      trace::describe(trace::critical_path(ranks, alignment), ranks, alignment);
  if (!profile.missing.empty())
    std::printf("%zu ranks have no trace of these steps, the first of them rank %d\n",
                profile.missing.size(), profile.missing.front());
  std::printf("%s%s: open it in ui.perfetto.dev\n", text.c_str(), file.c_str());
  return core::exit_done;
}

}  // namespace

int run_trace(const Arguments& arguments) {
  if (arguments.is_merge) return merge(arguments);
  const std::string text = comm::describe(comm::read_flight_records(arguments.path)) + "\n";
  std::fputs(text.c_str(), stdout);
  return core::exit_done;
}

}  // namespace finetune::app
