#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which format data have, from the names of the fields of their first records.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/format.hpp"

namespace finetune::data {

/// The value of data.format for which the format is found from the files.
inline constexpr const char* auto_format = "auto";

struct DetectedFormat {
  std::string name;
  std::string why;  ///< for the log: "train.jsonl has the fields "messages""
  /// What was opened, which may have been decompressed for it: keep it until the data are open.
  std::shared_ptr<const void> opened = nullptr;
};

/// The one of `formats` that the first records of `where` fit; of text files the one that reads
/// plain text. Throws: ErrorKind::input for data that fit none or several, with their fields, for
/// a name such as faq.csv that promises neither, and for files that cannot be read.
DetectedFormat detect_format(const DataPath& where, const Columns& columns,
                             std::span<const Format> formats);

/// The endings of the files of data in a folder: those of records, or of plain text if it has text
/// and no records; all that there are for what is no folder, or holds no data.
std::vector<std::string_view> data_endings(const DataPath& where);

/// The files of a folder or a pattern that are data. Throws: as choose_split.
SplitFiles choose_data_files(const DataPath& where);

/// The same as a list, also of a single file.
std::vector<std::filesystem::path> data_files(const DataPath& where);

}  // namespace finetune::data
