#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where the project lies. Functions, not macros: a path on a compiler's command line would keep
// every clone of the project from what another one has compiled.

#include <filesystem>

namespace finetune::tests {

/// The project's top folder.
std::filesystem::path source_folder();

/// The folder of the build that this test belongs to: build, or build/asan and build/tsan under
/// sanitizers.
std::filesystem::path build_folder();

}  // namespace finetune::tests
