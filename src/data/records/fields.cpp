// SPDX-License-Identifier: Apache-2.0
#include "data/records/fields.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

/// `"instruction", "input"`: the names an object has, for the message about the one it has not.
std::string field_names(const OrderedJson& object) {
  constexpr std::size_t most = 8;
  std::string names;
  std::size_t count = 0;
  for (const auto& item : object.items()) {
    if (++count > most) return names + ", ...";
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", core::one_line(item.key()));
  }
  return names;
}

[[noreturn]] void fail_missing(const OrderedJson& object, const Column& column,
                               const std::string& where) {
  std::vector<std::string> names;
  for (const auto& item : object.items())
    names.push_back(item.key());
  const auto meant = core::nearest(column.name, names);
  std::string remedy = column.key.empty() ? "Add it, or choose the data.format of these data."
                                          : fmt::format(
                                                "Add it, name another one in {}, or choose the "
                                                "data.format of these data.",
                                                column.key);
  if (meant && column.key.empty())
    remedy = fmt::format("Did you mean it by \"{}\"? Rename the field.", core::one_line(*meant));
  if (meant && !column.key.empty()) {
    remedy =
        fmt::format("Did you mean \"{0}\"? Set {1} = \"{0}\".", core::one_line(*meant), column.key);
  }
  core::fail(
      core::ErrorKind::input,
      {where, fmt::format("field \"{}\" is missing", core::one_line(column.name)),
       names.empty() ? "the object is empty" : "the fields are " + field_names(object), remedy});
}

/// The JSON text of a list or an object, or nothing.
std::optional<OrderedJson> parsed(const OrderedJson& value, const std::string& name,
                                  const std::string& where) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (text[first] != '[' && text[first] != '{')) return std::nullopt;
  // With the checks of all JSON that others wrote.
  return core::ordered_json(text, fmt::format("{}: field \"{}\"", where, core::one_line(name)));
}

}  // namespace

OrderedJson structured(OrderedJson value, const std::string& name, const std::string& where) {
  if (auto made = parsed(value, name, where)) return *std::move(made);
  return value;
}

OrderedJson without_nulls(const OrderedJson& value) {
  if (!value.is_structured()) return value;
  OrderedJson made = value.is_array() ? OrderedJson::array() : OrderedJson::object();
  for (const auto& item : value.items()) {
    if (value.is_array())
      made.push_back(without_nulls(item.value()));
    else if (!item.value().is_null())
      made[item.key()] = without_nulls(item.value());
  }
  return made;
}

const OrderedJson* find_field(const OrderedJson& record, const Column& column,
                              const std::string& where) {
  const auto found = record.find(column.name);
  if (found == record.end()) {
    if (column.chosen) fail_missing(record, column, where);
    return nullptr;
  }
  return found->is_null() ? nullptr : &*found;
}

const OrderedJson& field(const OrderedJson& record, const Column& column,
                         const std::string& where) {
  const auto found = record.find(column.name);
  if (found == record.end()) fail_missing(record, column, where);
  return *found;
}

std::string text_of(const OrderedJson& value, const std::string& name, const std::string& where) {
  if (!value.is_string()) {
    core::fail(core::ErrorKind::input, {where,
                                        fmt::format("field \"{}\" is of type {}",
                                                    core::one_line(name), core::type_name(value)),
                                        "text is needed", "Make it a string."});
  }
  return value.get<std::string>();
}

std::string text_field(const OrderedJson& record, const Column& column, const std::string& where) {
  return text_of(field(record, column, where), column.name, where);
}

std::string optional_text_field(const OrderedJson& record, const Column& column,
                                const std::string& where) {
  const OrderedJson* value = find_field(record, column, where);
  return value == nullptr ? "" : text_of(*value, column.name, where);
}

}  // namespace finetune::data
