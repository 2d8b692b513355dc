#pragma once
// SPDX-License-Identifier: Apache-2.0
// The fields that inputs/metrics.md names, and those of a row.

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "core/json.hpp"
#include "support/folders.hpp"

namespace finetune::tests {

using FieldNames = std::set<std::string>;  ///< "step", "times.steps"

struct Fields {
  FieldNames always, where_known;
};

/// Of the rows that have the field `kind`: what the tables below its heading have in the first
/// column. A table with "where known" in its head is of those that are not always there.
inline Fields documented_fields(const std::string& kind) {
  Fields fields;
  std::ifstream file(source_folder() / "inputs/metrics.md");
  bool is_here = false, is_sometimes = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) is_here = line.ends_with(": `" + kind + "`");
    if (line.starts_with("| field")) is_sometimes = line.find("where known") != line.npos;
    if (!is_here || !line.starts_with("| `")) continue;
    (is_sometimes ? fields.where_known : fields.always)
        .insert(line.substr(3, line.find('`', 3) - 3));
  }
  return fields;
}

/// Objects whose names are a matter of the run, such as axes and layers, count as one field.
inline void add_fields(const core::Json& object, const std::string& prefix, FieldNames& names) {
  static constexpr std::array open = {"sent_bytes",    "exposed_s",   "norms",
                                      "planned_bytes", "bytes_per_s", "slowest_nodes"};
  for (const auto& [name, value] : object.items()) {
    names.insert(prefix + name);
    if (std::ranges::find(open, name) != open.end()) continue;
    const bool is_list = value.is_array() && !value.empty() && value[0].is_object();
    if (value.is_object()) add_fields(value, prefix + name + ".", names);
    if (is_list) add_fields(value[0], prefix + name + ".", names);
  }
}

inline FieldNames fields_of(const core::Json& row) {
  FieldNames names;
  add_fields(row, "", names);
  return names;
}

inline FieldNames fields_of(const std::string& line) {
  return fields_of(core::parse_json(line, "a row"));
}

}  // namespace finetune::tests
