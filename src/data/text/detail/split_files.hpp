#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which files of a folder are training data, and which are not: by their names, as in folders of
// data sets on the Hugging Face Hub.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::data {

/// Every file of a folder, whatever its name says.
inline constexpr std::string_view all_splits = "all";

/// A file of data, a pattern of files, or a folder of files and the split of it that is wanted.
struct DataPath {
  std::filesystem::path path;
  std::string split = "train";
  std::string subset = "";             ///< of the data sets that README.md of a folder lists
  std::string key = "data.split";      ///< of the deck: where another split is chosen
  std::string path_key = "data.path";  ///< where a file of the folder can be named instead

  DataPath(std::filesystem::path where) : path(std::move(where)) {}  // NOLINT: a path is one
  DataPath(std::filesystem::path where, std::string wanted)
      : path(std::move(where)), split(std::move(wanted)) {}

  /// Validation data: "validation", or the only other split than "train" that is there.
  static DataPath validation(std::filesystem::path where, std::string wanted);
};

/// The split that the name of a file or folder tells: "train", "validation" and "test" for the
/// words that the Hub knows for them (training, valid, val, dev; testing, eval, evaluation)
/// between letters of no word, and "x" for "x-00000-of-00003". Empty if it tells none, "train or
/// test" if it tells several.
std::string split_named(std::string_view name);

/// The files of a folder.
struct SplitFiles {
  std::vector<std::filesystem::path> chosen;  ///< in the order of the bytes of their names
  std::string split;                          ///< that of the chosen; empty if no name tells one
  std::map<std::string, std::vector<std::string>> others;  ///< names of those left out, by split
};

/// Whether `where` is a folder or a pattern, and not one file.
bool is_several(const DataPath& where);

/// The files of a folder that are of the wanted split; all of them if nothing tells a split. Where
/// README.md lists files and splits of data sets, those of `where.subset`. Otherwise all files
/// below the folder whose names end in one of `endings` (".jsonl"); below its folder "data" alone,
/// if no such file lies beside that. Their splits are told by their names, else by those of the
/// folders that they lie in. Of a pattern, all files that it matches, whatever they are called.
/// Throws: ErrorKind::input if there are none, with the list of them if it is not clear which
/// are meant, and for files of different kinds (JSON, Parquet, ...) or one that is there twice.
SplitFiles choose_split(const DataPath& where, const std::vector<std::string_view>& endings);

/// Whether choose_split would look at any file of the folder `where.path`.
bool has_files(const DataPath& where, const std::vector<std::string_view>& endings);

/// Throws: ErrorKind::input if two of `files` are one, whatever they are called. `remedy`: what to
/// do then.
void require_distinct(const std::vector<std::filesystem::path>& files, const std::string& remedy);

}  // namespace finetune::data
