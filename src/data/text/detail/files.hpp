#pragma once
// SPDX-License-Identifier: Apache-2.0
// data.path as a list of files, and many readers as one.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/detail/split_files.hpp"
#include "data/text/format.hpp"

namespace finetune::data {

/// Opens `where.path` with `open`; if it is a folder, the files of its split whose extension is one
/// of `extensions` (".jsonl"), of a pattern those that it matches, in the order of choose_split, as
/// one reader.
/// Throws: ErrorKind::input if there is no such path, as choose_split, or as `open`.
std::unique_ptr<SampleReader> open_files(
    const DataPath& where, const std::vector<std::string_view>& extensions,
    const std::function<std::unique_ptr<SampleReader>(const std::filesystem::path&)>& open);

}  // namespace finetune::data
