#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files with the table [machine]: those that come with the program, and measured ones.

#include <filesystem>
#include <string>

#include "plan/machine/machine.hpp"

namespace finetune::plan {

/// Whether it is a path, not the name of a machine that comes with the program.
bool is_machine_file(const std::string& name_or_file);

/// The machine of a file, or one in `shipped` by its name without ".toml";
/// `shipped` may be empty for a path.
/// Throws: ErrorKind::command_line naming the known machines if there is none; ErrorKind::deck with
/// every problem of the file.
Machine read_machine(const std::string& name_or_file, const std::filesystem::path& shipped);

/// The machine of a text; `file_name` begins the messages.
Machine parse_machine(const std::string& text, const std::string& file_name);

/// Ranks per node by default: one per GPU, else one per core.
std::int64_t usual_ranks_per_node(const Machine& machine);

/// What a rank may use of the memory it computes in: its GPU without the driver's part, or its
/// share of the node's without what the system and the network take. 0: not known.
std::int64_t usable_bytes(const Machine& machine, std::int64_t ranks_per_node);

}  // namespace finetune::plan
