#pragma once
// SPDX-License-Identifier: Apache-2.0
// Columns of an Arrow IPC file, as its description has them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/records/detail/flat_table.hpp"

namespace finetune::data::arrow_ipc {

/// How values lie in memory.
enum class Kind {
  null,
  number,     ///< `bits` wide, of `number`
  boolean,    ///< a bit each
  text,       ///< places of 32 bits, then letters
  text_view,  ///< 16 bytes each, with the letters or where they are
  list,       ///< places, and a child
  fixed_list,
  structure,
  other,  ///< of no form in JSON: passed over, with all of its buffers
};

enum class Number { none, integer, natural, real };

struct Field {
  std::string name;
  Kind kind = Kind::other;
  Number number = Number::none;
  int bits = 0;
  bool is_large = false;    ///< places have 64 bits
  bool is_readable = true;  ///< it has a form in JSON, though perhaps without some of its children
  int num_buffers = 0;      ///< of its own
  std::int32_t fixed_size = 0;
  std::vector<Field> children = {};
  std::optional<std::int64_t> dictionary = {};  ///< its values are places in this one's
  int index_bits = 0;                           ///< of these places
  bool index_is_signed = true;
};

/// The columns of a Schema. Throws: ErrorKind::input beginning with `where` for types that are not
/// known, columns that are nested too deeply, or another order of bytes.
std::vector<Field> fields_of(const FlatTable& schema, const std::string& where);

/// What the readable ones of `columns` lack, as Records::left_out.
std::vector<std::string> left_out_of(const std::vector<Field>& columns);

/// Numbers of the fields of Arrow's tables, from 0.
/// Source: Apache Arrow, format/{Message,Schema,File}.fbs (MetadataVersion V5).
namespace message {
inline constexpr int version = 0, header_type = 1, header = 2, body_length = 3;
inline constexpr int schema_type = 1, dictionary_type = 2, record_type = 3;
}  // namespace message
namespace record_batch {
inline constexpr int length = 0, nodes = 1, buffers = 2, compression = 3, view_counts = 4;
inline constexpr int codec = 0;  // of BodyCompression
}  // namespace record_batch
namespace dictionary_batch {
inline constexpr int id = 0, data = 1, is_delta = 2;
}  // namespace dictionary_batch
namespace footer {
inline constexpr int schema = 1, dictionaries = 2, record_batches = 3;
inline constexpr int block_bytes = 24;  // i64 place, i32 bytes of the description, i64 of the body
}  // namespace footer
namespace schema {
inline constexpr int endianness = 0, fields = 1;
inline constexpr int name = 0, type_kind = 2, type = 3, dictionary = 4, children = 5;  // of Field
inline constexpr int dictionary_id = 0, index_type = 1;  // of DictionaryEncoding
inline constexpr int bit_width = 0, is_signed = 1;       // of Int
inline constexpr int precision = 0;                      // of FloatingPoint
inline constexpr int list_size = 0;                      // of FixedSizeList
inline constexpr int union_mode = 0;                     // of Union
}  // namespace schema

}  // namespace finetune::data::arrow_ipc
