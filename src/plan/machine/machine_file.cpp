// SPDX-License-Identifier: Apache-2.0
#include "plan/machine/machine_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "deck/suggest.hpp"

namespace finetune::plan {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_file_bytes = std::int64_t{1} << 20;
/// Of a node: the operating system, libraries, the network's buffers. Of a GPU the driver's part
/// alone: a plan counts contexts, libraries and communicators itself.
constexpr double usable_of_node = 0.94;
constexpr double usable_of_gpu = 0.99;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void refuse_file(const std::string& file) {
  core::fail(core::ErrorKind::command_line,
             {"--machine " + file, "there is no such file", "",
              "Name a machine that comes with the program, as h100-8, or measure yours: finetune "
              "check --save FILE."});
}

[[noreturn]] void refuse(const std::string& name, const fs::path& shipped) {
  const std::vector<std::string> names = names_in(shipped);
  auto meant = deck::closest(name, names);
  const auto longer = std::find_if(names.begin(), names.end(), [&](const std::string& known) {
    return !name.empty() && known.starts_with(name);
  });
  if (!meant && longer != names.end()) meant = *longer;
  core::fail(
      core::ErrorKind::command_line,
      {"--machine " + name, "there is no such machine, and no such file", "",
       (meant ? fmt::format("Did you mean \"{}\"? ", *meant) : std::string()) + "Known are " +
           deck::list(names) + "; finetune check --save FILE measures yours."});
}

}  // namespace

Machine parse_machine(const std::string& text, const std::string& file_name) {
  Machine machine;
  deck::Deck deck(text, file_name, {});
  deck::Table table = deck.table("machine", "What nodes, links and files of a machine can do.");
  machine.bind(table);
  deck.finish();
  if (usual_ranks_per_node(machine) > 0) return machine;
  core::fail(core::ErrorKind::deck,
             {file_name, "a node has neither GPUs nor cores", "ranks compute on one of them",
              "Set machine.gpus_per_node or cores_per_node."});
}

bool is_machine_file(const std::string& name_or_file) {
  return name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".toml");
}

Machine read_machine(const std::string& name_or_file, const fs::path& shipped) {
  const bool is_path = is_machine_file(name_or_file);
  const fs::path file = is_path ? fs::path(name_or_file) : shipped / (name_or_file + ".toml");
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) {
    if (is_path) refuse_file(name_or_file);
    refuse(name_or_file, shipped);
  }
  return parse_machine(core::read_text(file, largest_file_bytes, core::ErrorKind::deck),
                       file.string());
}

std::int64_t usual_ranks_per_node(const Machine& machine) {
  if (machine.ranks_per_node > 0) return machine.ranks_per_node;
  return machine.gpus_per_node > 0 ? machine.gpus_per_node : machine.cores_per_node;
}

std::int64_t usable_bytes(const Machine& machine, std::int64_t ranks_per_node) {
  const double gib = machine.gpus_per_node > 0 ? usable_of_gpu * machine.gpu_memory_gib
                                               : usable_of_node * machine.node_memory_gib /
                                                     static_cast<double>(ranks_per_node);
  return static_cast<std::int64_t>(gib * 0x1p30);
}

}  // namespace finetune::plan
