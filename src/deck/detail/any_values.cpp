// SPDX-License-Identifier: Apache-2.0
// Keys that hold a table of any values.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "deck/detail/contents.hpp"
#include "deck/table.hpp"

namespace finetune::deck {
namespace {

/// What a resolved deck writes on one line, which its reader takes.
constexpr std::size_t longest_bytes = 1000;

std::string written(const core::OrderedJson& value) {
  if (value.is_string()) return to_toml(value.get<std::string>());
  if (value.is_number_integer()) return to_toml(value.get<std::int64_t>());
  if (value.is_number_float()) return to_toml(value.get<double>());
  if (value.is_boolean()) return to_toml(value.get<bool>());
  std::string out;
  for (const auto& item : value.items()) {
    out += out.empty() ? "" : ", ";
    if (value.is_object()) out += fmt::format("{} = ", name_in_toml(item.key()));
    out += written(item.value());
  }
  if (value.is_array()) return fmt::format("[{}]", out);
  return out.empty() ? "{}" : fmt::format("{{ {} }}", out);
}

}  // namespace

/// What `value` is in JSON; nothing, and a problem is noted, where it is nothing.
std::optional<core::OrderedJson> Table::any_value(const Row& row, const Value& value) {
  switch (value.kind) {
    case ValueKind::text:
      if (is_fit(row, value, {})) return value.text;
      return std::nullopt;
    case ValueKind::boolean:
      return value.written == "true";
    case ValueKind::integer:
      if (const auto number = parse_integer(value.written)) return *number;
      out_of_range(row, value);
      return std::nullopt;
    case ValueKind::real:
      if (const auto number = parse_real(value.written); number && std::isfinite(*number))
        return *number;
      out_of_range(row, value);
      return std::nullopt;
    case ValueKind::array:
    case ValueKind::table: {
      const bool is_table = value.kind == ValueKind::table;
      auto made = is_table ? core::OrderedJson::object() : core::OrderedJson::array();
      bool fits = true;
      const auto add = [&](const Value& entry, const std::string* name) {
        Row inner = row;
        if (name != nullptr) inner.key = fmt::format("{}.{}", row.key, shown_name(*name));
        Value placed = entry;
        if (!value.place.argument.empty()) placed.place = placed.key_place = value.place;
        auto json = any_value(inner, placed);
        fits = fits && json.has_value();
        if (!json) return;
        if (name != nullptr)
          made[*name] = *std::move(json);
        else
          made.push_back(*std::move(json));
      };
      for (const Value& element : value.elements)
        add(element, nullptr);
      for (const auto& [name, entry] : value.entries)
        add(entry, &name);
      return fits ? std::optional(std::move(made)) : std::nullopt;
    }
    default:
      contents_->problems.add({value.place,
                               fmt::format("{}.{} = {} is {}", row.table, row.key, shown(value),
                                           deck::describe(value.kind)),
                               "JSON has none", "Write it as a string."});
      return std::nullopt;
  }
}

void Table::values(const Key& key, core::OrderedJson& values) {
  Row row = this->row(key, Type::values);
  row.default_value = written(values);
  require_default(row, values.is_object() || values.is_null());
  if (const Value* found = given(row)) {
    Row inner = row;
    inner.type = Type::text;
    std::optional<core::OrderedJson> json;
    if (found->kind == ValueKind::table)
      json = any_value(inner, *found);
    else
      wrong_type(row, *found);
    if (json && written(*json).size() > longest_bytes) {
      problem(row.key,
              fmt::format("{}.{} takes more than {} bytes", row.table, row.key, longest_bytes),
              "it is written on one line", "Shorten it.");
      json.reset();
    }
    if (json) values = *std::move(json);
  }
  row.value = written(values);
  contents_->rows.push_back(std::move(row));
}

}  // namespace finetune::deck
