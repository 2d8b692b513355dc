#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names of files below a folder, and those that a pattern matches: in the same order on every rank.

#include <filesystem>
#include <string>
#include <vector>

namespace finetune::data {

/// Files below `folder`, at any depth, by their names from there on ("a/b.jsonl") in the order of
/// their bytes. Not looked at: what is hidden or called __*__, and folders below it that hold
/// a model, an adapter or the output of a run. Links to folders are followed, but for those that
/// lead back to where they lie. Throws: ErrorKind::input for a folder that cannot be listed.
std::vector<std::string> files_below(const std::filesystem::path& folder);

/// Whether `path` is a pattern: it has *, ? or [, and nothing of that very name is there.
bool is_pattern(const std::filesystem::path& path);

/// Files that a pattern matches, in the order of the bytes of their paths: * and ? for characters
/// of a name, [a-c] for one of some, and ** as a whole name for any folders, or none. What is
/// hidden is only matched by a name that begins with a point. Throws: as files_below.
std::vector<std::filesystem::path> matching_files(const std::filesystem::path& pattern);
/// The same of a pattern that begins in `folder`, whatever the folder is called.
std::vector<std::filesystem::path> matching_files(const std::filesystem::path& folder,
                                                  const std::string& pattern);

/// The folder that a pattern begins with: "data" of "data/*/x.json", "." of "*.json".
std::filesystem::path folder_of_pattern(const std::filesystem::path& pattern);

}  // namespace finetune::data
