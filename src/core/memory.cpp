// SPDX-License-Identifier: Apache-2.0
#include "core/memory.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace finetune::core {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// The number behind `name` in a file of lines "name number", nothing without such a line.
std::optional<std::int64_t> field(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word && word == name && words >> number) return number;
  }
  return std::nullopt;
}

/// A file of one number; nothing if it is missing or says "max".
std::optional<std::int64_t> number(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_file;
};
constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file"};

std::int64_t left_in_group(const fs::path& folder, const GroupFiles& files) {
  const auto limit = number(folder / files.limit);
  if (!limit) return unlimited;
  const std::int64_t used = number(folder / files.usage).value_or(0) -
                            field(folder / "memory.stat", files.inactive_file).value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used));
}

/// The group and all it is in. Inside a container the path may be that of the outside, of which
/// only the mount's own folder can be seen.
std::int64_t left_in_groups(const fs::path& mount, const std::string& group,
                            const GroupFiles& files) {
  std::int64_t left = left_in_group(mount, files);
  for (fs::path path = fs::path(group).relative_path(); !path.empty(); path = path.parent_path())
    left = std::min(left, left_in_group(mount / path, files));
  return left;
}

/// Lines of /proc/self/cgroup are "number:controllers:path"; v2 is "0::path".
std::int64_t left_in_groups(const fs::path& root) {
  std::int64_t left = unlimited;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,")
      left = std::min(left, left_in_groups(root / "sys/fs/cgroup", group, version_2));
    if (controllers.find(",memory,") != std::string::npos)
      left = std::min(left, left_in_groups(root / "sys/fs/cgroup/memory", group, version_1));
  }
  return left;
}

std::int64_t of_this_process(const char* name) {
  return 1024 * field("/proc/self/status", name).value_or(0);
}

}  // namespace

std::int64_t available_memory_bytes(const fs::path& root) {
  const auto kib = field(root / "proc/meminfo", "MemAvailable:");
  return std::min(kib ? 1024 * *kib : unlimited, left_in_groups(root));
}

std::int64_t resident_bytes() {
  return of_this_process("VmRSS:");
}

std::int64_t peak_resident_bytes() {
  return of_this_process("VmHWM:");
}

}  // namespace finetune::core
