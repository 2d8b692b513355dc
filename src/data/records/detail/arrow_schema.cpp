// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/arrow_schema.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data::arrow_ipc {
namespace {

constexpr int deepest = 32;
constexpr int most_fields = 10000;

/// Of the union Type, in its order.
enum TypeCode {
  null_type = 1,
  int_type,
  floating_point,
  binary,
  utf8,
  bool_type,
  decimal,
  date,
  time,
  timestamp,
  interval,
  list,
  struct_type,
  union_type,
  fixed_size_binary,
  fixed_size_list,
  map,
  duration,
  large_binary,
  large_utf8,
  large_list,
  run_end_encoded,
  binary_view,
  utf8_view,
  list_view,
  large_list_view,
};

class FieldReader {
 public:
  explicit FieldReader(const std::string& where) : where_(where) {}

  std::vector<Field> fields(const std::vector<FlatTable>& tables, int depth) {
    if (depth > deepest)
      fail_binary(where_, "its columns are nested too deeply", "no data set's are");
    std::vector<Field> made;
    for (const FlatTable& table : tables)
      made.push_back(field(table, depth));
    return made;
  }

 private:
  Field field(const FlatTable& table, int depth) {
    if (++num_fields_ > most_fields)
      fail_binary(where_, "it has too many columns", "no data set has");
    Field made;
    made.name = table.text(schema::name);
    if (core::invalid_utf8(made.name))
      fail_binary(where_, "the name of a column is not valid UTF-8", "it is damaged");
    made.children = fields(table.tables(schema::children), depth + 1);
    set_type(table, made);
    // A struct is what is left of it, a list what lies in it.
    if (!made.children.empty())
      made.is_readable = std::ranges::any_of(made.children, &Field::is_readable);
    if (made.kind == Kind::other) made.is_readable = false;
    if (const auto coded = table.table(schema::dictionary)) {
      made.dictionary = coded->number<std::int64_t>(schema::dictionary_id);
      const auto index = coded->table(schema::index_type);
      made.index_bits = index ? width_of(*index, made) : 32;
      made.index_is_signed = !index || index->number<std::uint8_t>(schema::is_signed) != 0;
    }
    return made;
  }

  void set_type(const FlatTable& table, Field& made) {
    const int code = table.number<std::uint8_t>(schema::type_kind);
    const auto type = table.table(schema::type);
    if (!type) refuse(made, code);
    switch (code) {
      case null_type:
        return set(made, Kind::null, 0);
      case int_type:
        made.bits = width_of(*type, made);
        made.number =
            type->number<std::uint8_t>(schema::is_signed) != 0 ? Number::integer : Number::natural;
        return set(made, Kind::number, 2);
      case floating_point: {
        const int precision = type->number<std::int16_t>(schema::precision);
        made.bits = 16 << std::clamp(precision, 0, 2);
        made.number = Number::real;
        return set(made, made.bits == 16 ? Kind::other : Kind::number, 2);
      }
      case bool_type:
        return set(made, Kind::boolean, 2);
      case utf8:
      case large_utf8:
        made.is_large = code == large_utf8;
        return set(made, Kind::text, 3);
      case utf8_view:
        return set(made, Kind::text_view, 2);
      case list:
      case large_list:
        made.is_large = code == large_list;
        return set_with_child(made, Kind::list, 2, code);
      case fixed_size_list:
        made.fixed_size = type->number<std::int32_t>(schema::list_size);
        if (made.fixed_size < 0) refuse(made, code);
        return set_with_child(made, Kind::fixed_list, 1, code);
      case struct_type:
        return set(made, Kind::structure, 1);
      case union_type:
        return set(made, Kind::other, type->number<std::int16_t>(schema::union_mode) == 0 ? 1 : 2);
      case run_end_encoded:
        return set(made, Kind::other, 0);
      case binary:
      case large_binary:
      case list_view:
      case large_list_view:
        return set(made, Kind::other, 3);
      case map:
      case decimal:
      case date:
      case time:
      case timestamp:
      case interval:
      case fixed_size_binary:
      case duration:
        return set(made, Kind::other, 2);
      default:
        refuse(made, code);
    }
  }

  static void set(Field& made, Kind kind, int num_buffers) {
    made.kind = kind;
    made.num_buffers = num_buffers;
  }

  void set_with_child(Field& made, Kind kind, int num_buffers, int code) const {
    if (made.children.size() != 1) refuse(made, code);
    set(made, kind, num_buffers);
  }

  int width_of(const FlatTable& type, const Field& made) const {
    const auto bits = type.number<std::int32_t>(schema::bit_width);
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) refuse(made, int_type);
    return bits;
  }

  [[noreturn]] void refuse(const Field& made, int code) const {
    fail_binary(
        where_,
        fmt::format("column \"{}\" is of a type that is not known", core::one_line(made.name)),
        fmt::format("its code is {}", code));
  }

  const std::string& where_;
  int num_fields_ = 0;
};

/// What lies in a list has the list's name.
void list_left_out(const Field& field, const std::string& name, std::vector<std::string>& found) {
  for (const Field& child : field.children) {
    const std::string its = field.kind == Kind::structure ? name + "." + child.name : name;
    if (child.is_readable)
      list_left_out(child, its, found);
    else
      found.push_back(its);
  }
}

}  // namespace

std::vector<std::string> left_out_of(const std::vector<Field>& columns) {
  std::vector<std::string> found;
  for (const Field& column : columns)
    if (column.is_readable) list_left_out(column, column.name, found);
  return found;
}

std::vector<Field> fields_of(const FlatTable& table, const std::string& where) {
  if (table.number<std::int16_t>(schema::endianness) != 0)
    fail_binary(where, "its bytes are in the other order", "numbers are read as they lie");
  return FieldReader(where).fields(table.tables(schema::fields), 0);
}

}  // namespace finetune::data::arrow_ipc
