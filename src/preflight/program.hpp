#pragma once
// SPDX-License-Identifier: Apache-2.0
// What this process runs, as digits to compare.

#include <string>
#include <vector>

namespace finetune::preflight {

/// A hash of this program's file (sampled, see sampled_hash, and the same for the same bytes);
/// empty if the system does not show it.
std::string program_hash();

/// The shared libraries that this process has loaded: "name build-id" each, sorted.
std::vector<std::string> libraries();

/// A hash of them.
std::string libraries_hash();

/// How two such lists differ, as names: "libx.so in another build, liby.so only here, libz.so
/// only there"; empty if nothing does.
std::string library_differences(const std::vector<std::string>& here,
                                const std::vector<std::string>& there);

}  // namespace finetune::preflight
