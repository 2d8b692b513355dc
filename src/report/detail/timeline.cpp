// SPDX-License-Identifier: Apache-2.0
#include "report/detail/timeline.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#include "core/error.hpp"
#include "core/file.hpp"

namespace finetune::report::detail {
namespace {

constexpr std::int64_t largest_file = 16 << 20;

std::optional<MemoryTimeline> parsed(const std::filesystem::path& path) {
  try {
    const core::Json file = core::Json::parse(core::read_text(path, largest_file));
    MemoryTimeline made{.rank = file.at("rank").get<std::int64_t>(),
                        .first_step = file.at("first_step").get<std::int64_t>(),
                        .last_step = file.at("last_step").get<std::int64_t>(),
                        .at_s = file.at("at_s").get<std::vector<double>>()};
    for (const auto& [use, values] : file.at("mib").items()) {
      made.mib.emplace_back(use, values.get<std::vector<double>>());
      if (made.mib.back().second.size() != made.at_s.size()) return std::nullopt;
    }
    return made;
  } catch (const core::Json::exception&) {
    return std::nullopt;
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<MemoryTimeline> read_timeline(const std::filesystem::path& folder) {
  // By when it was written: an earlier run in this folder may have done more steps.
  std::filesystem::path newest;
  std::filesystem::file_time_type written;
  std::error_code error, ignored;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("memory.steps-") || !name.ends_with(".json")) continue;
    if (!entry->is_regular_file(ignored)) continue;
    const auto time = entry->last_write_time(ignored);
    if (!newest.empty() && time <= written) continue;
    newest = entry->path();
    written = time;
  }
  return newest.empty() ? std::nullopt : parsed(newest);
}

}  // namespace finetune::report::detail
