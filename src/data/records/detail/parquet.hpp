#pragma once
// SPDX-License-Identifier: Apache-2.0
// Parquet files: by Arrow's library if the program was built with it, else by our own reader.

#include <filesystem>
#include <memory>

#include "data/records/records.hpp"

namespace finetune::data {

/// Rows as records: columns become fields, nested ones objects and arrays.
/// What is no JSON (bytes, times, maps, ...) is left out. Throws: ErrorKind::input for a file that
/// is damaged or has no rows.
std::unique_ptr<Records> open_parquet(const std::filesystem::path& path);

}  // namespace finetune::data
