// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "report/detail/rows.hpp"
#include "report/page.hpp"

namespace finetune::report {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// A cell as RFC 4180 has it.
std::string cell_of(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text)
    out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

/// Numbers and texts of `value`, and of what it holds: least, median and largest by name.
void flatten(const std::string& name, const core::Json& value, Fields& fields) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      flatten(name.empty() ? key : name + "." + key, inner, fields);
  } else if (value.is_array() && value.size() == 3 && value[0].is_number()) {
    constexpr const char* names[] = {"min", "median", "max"};
    for (std::size_t i = 0; i < 3; ++i)
      flatten(name + "." + names[i], value[i], fields);
  } else if (value.is_number_float()) {
    fields.emplace_back(name, core::round_trip(value.get<double>()));
  } else if (value.is_string()) {
    fields.emplace_back(name, cell_of(core::one_line(value.get<std::string>())));
  } else if (!value.is_array() && !value.is_null()) {
    fields.emplace_back(name, value.dump());
  }
}

}  // namespace

std::string csv(std::span<const std::filesystem::path> folders) {
  std::vector<std::string> columns = {"run", "step"};
  std::vector<Fields> rows;
  for (const auto& folder : folders) {
    const std::string run = HistoryReader(folder).history().name;
    for_each_row(folder, [&](const core::Json& row) {
      const auto asked = row.find("evaluation");
      if (!row.contains("loss") && !row.contains("validation_loss") && asked == row.end()) return;
      Fields fields = {{"run", cell_of(core::one_line(run))}};
      flatten("", row, fields);
      if (asked != row.end() && asked->is_array())
        for (const core::Json& one : *asked)
          if (const std::string name = detail::text_of(one, "name"); !name.empty())
            flatten(name, one.value("value", core::Json()), fields);
      for (const auto& [name, value] : fields)
        if (std::ranges::find(columns, name) == columns.end()) columns.push_back(name);
      rows.push_back(std::move(fields));
    });
  }
  std::string out;
  for (std::size_t i = 0; i < columns.size(); ++i)
    out += (i == 0 ? "" : ",") + cell_of(columns[i]);
  out += '\n';
  for (const Fields& fields : rows) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto found = std::ranges::find(fields, columns[i], &Fields::value_type::first);
      out += (i == 0 ? "" : ",") + (found == fields.end() ? "" : found->second);
    }
    out += '\n';
  }
  return out;
}

}  // namespace finetune::report
