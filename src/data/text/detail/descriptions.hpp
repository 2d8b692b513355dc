#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files next to data that hold none of their own.

#include <string>
#include <vector>

namespace finetune::data {

/// Whether the file `name` only describes data, or holds again what another has: descriptions of
/// the Hugging Face libraries, state.json and cache-*.arrow beside Arrow files, index.json beside
/// the shards of MDS, and a compressed shard beside the same one that is not. `names`: all files
/// that lie there, from the same folder on, in the order of their bytes.
bool is_no_data(const std::string& name, const std::vector<std::string>& names);

}  // namespace finetune::data
