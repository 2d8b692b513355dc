// SPDX-License-Identifier: Apache-2.0
#include "tasks/progress.hpp"

#include <sstream>
#include <utility>

namespace finetune::tasks {

Progress::Progress(const std::string& lines, const std::string& fingerprint, Write write)
    : write_(std::move(write)) {
  std::istringstream in(lines);
  std::string line;
  for (bool is_first = true; std::getline(in, line) && !in.eof(); is_first = false) {
    core::Json entry = core::Json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;
    if (is_first) {
      continues_ = entry.value("fingerprint", "") == fingerprint;
      if (!continues_) break;
    } else if (entry.contains("key") && entry["key"].is_string() && entry.contains("value")) {
      known_[entry["key"].get<std::string>()] = std::move(entry["value"]);
    }
  }
  if (!continues_ && write_) write_(core::Json({{"fingerprint", fingerprint}}).dump() + "\n");
}

const core::Json* Progress::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : &found->second;
}

void Progress::add(const std::string& key, core::Json value) {
  if (write_) write_(core::Json({{"key", key}, {"value", value}}).dump() + "\n");
  known_[key] = std::move(value);
}

}  // namespace finetune::tasks
