// SPDX-License-Identifier: Apache-2.0
#include "slurm_nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace finetune::app {
namespace {

std::vector<std::string> split_at(const std::string& text, char end) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, end);)
    parts.push_back(part);
  return parts;
}

/// The number that `text` begins with: "128+" are 128 at least. 0 without one.
std::int64_t leading_number(std::string_view text) {
  std::int64_t value = 0;
  for (const char digit : text.substr(0, 12)) {
    if (std::isdigit(static_cast<unsigned char>(digit)) == 0) break;
    value = 10 * value + (digit - '0');
  }
  return value;
}

/// GPUs of "gpu:a100:4(S:0-1),nvme:1", "gpu:8" or "(null)".
std::int64_t gpus_of(const std::string& gres) {
  std::int64_t count = 0;
  for (const std::string& part : split_at(gres, ',')) {
    if (!part.starts_with("gpu")) continue;
    const std::string named = part.substr(0, part.find('('));
    const std::size_t colon = named.rfind(':');
    const std::int64_t number =
        colon == std::string::npos ? 1 : leading_number(named.substr(colon + 1));
    count += std::max<std::int64_t>(1, number);
  }
  return count;
}

/// Hours of "3-00:00:00", "12:00:00" or "30:00"; 0 for "infinite".
double hours_of(const std::string& limit) {
  const std::size_t dash = limit.find('-');
  double days = 0;
  std::string clock = limit;
  if (dash != std::string::npos) {
    days = static_cast<double>(leading_number(limit));
    clock = limit.substr(dash + 1);
  }
  const std::vector<std::string> parts = split_at(clock, ':');
  double seconds = 0;
  for (const std::string& part : parts)
    seconds = 60 * seconds + static_cast<double>(leading_number(part));
  return 24 * days + seconds / 3600;
}

std::string output_of(const std::string& command) {
  struct Close {
    void operator()(std::FILE* pipe) const { ::pclose(pipe); }
  };
  const std::unique_ptr<std::FILE, Close> pipe(::popen(command.c_str(), "r"));
  std::string text;
  if (!pipe) return text;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), n);
  return text;
}

void require_name(const std::string& partition) {
  const auto is_fit = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.' ||
           letter == ',';
  };
  if (std::ranges::all_of(partition, is_fit)) return;
  core::fail(core::ErrorKind::command_line,
             {"--partition " + partition, "that is no name of a partition",
              "names have letters, digits, '_', '-' and '.', and lists commas between them",
              "Say one that sinfo lists."});
}

}  // namespace

std::optional<plan::Machine> read_sinfo(const std::string& text, const std::string& partition,
                                        Gpus gpus) {
  std::optional<plan::Machine> best;
  std::int64_t most_nodes = 0;
  for (const std::string& line : split_at(text, '\n')) {
    const std::vector<std::string> fields = split_at(line, '|');
    if (fields.size() < 7) continue;
    const bool is_default = fields[0].ends_with('*');
    const std::string name = fields[0].substr(0, fields[0].size() - (is_default ? 1 : 0));
    if (partition.empty() ? !is_default : name != partition) continue;
    plan::Machine machine;
    const std::int64_t nodes = leading_number(fields[1]);
    // A rank has cores, not the hardware threads of them.
    machine.cores_per_node =
        leading_number(fields[2]) / std::max<std::int64_t>(1, leading_number(fields[3]));
    // 1 MB is what Slurm says where nobody has told it.
    if (const std::int64_t mib = leading_number(fields[4]); mib > 1024)
      machine.node_memory_gib = static_cast<double>(mib) / 1024;
    machine.max_walltime_hours = hours_of(fields[5]);
    machine.gpus_per_node = gpus == Gpus::wanted ? gpus_of(fields[6]) : 0;
    machine.name = fmt::format(
        "By sinfo, partition {} has {} nodes of {} cores, {:.0f} GiB and {} GPUs.", name, nodes,
        machine.cores_per_node, machine.node_memory_gib, gpus_of(fields[6]));
    const bool has_more = machine.gpus_per_node > 0 && best && best->gpus_per_node == 0;
    const bool has_less = machine.gpus_per_node == 0 && best && best->gpus_per_node > 0;
    if (has_less || (best && !has_more && nodes <= most_nodes)) continue;
    most_nodes = nodes;
    best = machine;
  }
  return best;
}

std::optional<plan::Machine> ask_slurm(const std::string& partition, Gpus gpus) {
  require_name(partition);
  const std::string text =
      output_of(fmt::format("sinfo --exact --noheader --format='{}' 2>/dev/null", sinfo_format));
  if (text.empty()) return std::nullopt;
  // Of a list the first: the job starts where there is room first, and who counts on the others
  // says so by --machine.
  const auto machine = read_sinfo(text, partition.substr(0, partition.find(',')), gpus);
  if (!machine && !partition.empty()) {
    core::fail(core::ErrorKind::command_line,
               {"--partition " + partition, "this Slurm has none of that name",
                "sinfo does not list it", "Say one that sinfo lists."});
  }
  return machine;
}

}  // namespace finetune::app
