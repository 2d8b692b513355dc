#pragma once
// SPDX-License-Identifier: Apache-2.0
// Parquet files, if the program was built with Arrow's library.

#include <filesystem>
#include <memory>

#include "data/records/records.hpp"

namespace finetune::data {

/// Whether the program was built with the library.
bool has_parquet();

/// Rows as records: columns become fields, nested ones objects and arrays.
/// Throws: ErrorKind::environment without the library; ErrorKind::input for a file that is damaged,
/// has no rows, or holds types that are no JSON.
std::unique_ptr<Records> open_parquet(const std::filesystem::path& path);

}  // namespace finetune::data
