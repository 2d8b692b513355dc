#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where the files lie that come with the program: decks, jobscripts, machines.

#include <filesystem>

namespace finetune::core {

/// A file or folder that comes with the program, named as in the source tree ("inputs/machines"):
/// below share/finetune of the prefix that this binary is installed in, or in the source tree whose
/// build folder it lies in. Found from where the binary is, so that a prefix may be moved.
/// Throws: ErrorKind::environment naming the places where it is not.
std::filesystem::path shipped(const std::filesystem::path& relative);

/// The same for a binary in another folder, for tests.
std::filesystem::path shipped(const std::filesystem::path& relative,
                              const std::filesystem::path& folder_of_binary);

}  // namespace finetune::core
