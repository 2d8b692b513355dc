// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/arrow_batch.hpp"

#include <fmt/format.h>

#include <limits>

#include "core/error.hpp"
#include "data/records/detail/arrow_values.hpp"
#include "data/records/detail/json_index.hpp"
#include "data/records/detail/unpack.hpp"

namespace finetune::data::arrow_ipc {
namespace {

/// Hands out nodes and buffers in the order of the columns.
class ColumnReader {
 public:
  ColumnReader(const FlatTable& table, Bytes body, const std::string& where,
               std::vector<std::vector<std::byte>>& unpacked)
      : where_(where),
        body_(body),
        nodes_(table.structs(record_batch::nodes, 16)),
        buffers_(table.structs(record_batch::buffers, 16)),
        view_counts_(table.structs(record_batch::view_counts, 8)),
        unpacked_(unpacked),
        room_(most_unpacked(std::ssize(body))) {
    if (const auto compression = table.table(record_batch::compression)) {
      const int codec = compression->number<std::int8_t>(record_batch::codec);
      if (codec != 0 && codec != 1)
        fail_binary(where, "it is compressed in a way that is not known");
      codec_ = codec == 0 ? Codec::lz4_frame : Codec::zstd;
      is_packed_ = true;
    }
  }

  Column column(const Field& field) {
    Column made{.field = &field};
    const Bytes node = next(nodes_, 16, "a column");
    made.length = number_in<std::int64_t>(node);
    made.has_nulls = number_in<std::int64_t>(node.subspan(8)) != 0;
    if (made.length < 0) fail_binary(where_, "a column has less than no rows");
    const int num_buffers = field.dictionary ? 2 : field.num_buffers;
    if (num_buffers > 0 && (field.dictionary || field.is_readable)) {
      made.validity = buffer();
      if (num_buffers == 3) made.places = buffer();
      if (num_buffers >= 2) made.values = buffer();
    } else {
      for (int b = 0; b < num_buffers; ++b)
        next(buffers_, 16, "a buffer");
    }
    if (field.dictionary) return made;
    if (field.kind == Kind::list) std::swap(made.places, made.values);
    if (field.kind == Kind::text_view) {
      const auto count = number_in<std::int64_t>(next(view_counts_, 8, "a count of buffers"));
      if (count < 0 || count > std::ssize(buffers_)) fail_binary(where_, "its buffers are too few");
      for (std::int64_t v = 0; v < count; ++v)
        made.views.push_back(buffer());
    }
    for (const Field& child : field.children)
      made.children.push_back(column(child));
    return made;
  }

 private:
  Bytes next(Bytes& list, std::size_t size, const char* what) const {
    if (list.size() < size) fail_binary(where_, fmt::format("it lacks {} that it describes", what));
    const Bytes taken = list.first(size);
    list = list.subspan(size);
    return taken;
  }

  Bytes buffer() {
    const Bytes place = next(buffers_, 16, "a buffer");
    const auto at = number_in<std::int64_t>(place);
    const auto size = number_in<std::int64_t>(place.subspan(8));
    if (at < 0 || size < 0 || at > std::ssize(body_) || size > std::ssize(body_) - at)
      fail_binary(where_, "a buffer leads out of it");
    const Bytes bytes = body_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
    if (!is_packed_ || bytes.empty()) return bytes;
    if (bytes.size() < 8) fail_binary(where_, "a compressed buffer is too short");
    const auto unpacked = number_in<std::int64_t>(bytes);
    // What did not become smaller lies there as it was.
    if (unpacked == -1) return bytes.subspan(8);
    if (unpacked < 0 || unpacked > room_)
      fail_binary(where_, fmt::format("a buffer expands to {} bytes", unpacked));
    room_ -= unpacked;
    unpacked_.push_back(
        unpack(codec_, bytes.subspan(8), static_cast<std::size_t>(unpacked), where_));
    return unpacked_.back();
  }

  const std::string& where_;
  Bytes body_, nodes_, buffers_, view_counts_;
  std::vector<std::vector<std::byte>>& unpacked_;
  std::int64_t room_;
  bool is_packed_ = false;
  Codec codec_ = Codec::zstd;
};

}  // namespace

Batch::Batch(const FlatTable& table, const core::File& file, std::int64_t body_at,
             std::int64_t body_bytes, const std::vector<Field>& fields, const std::string& where)
    : body_(static_cast<std::size_t>(body_bytes)),
      length_(table.number<std::int64_t>(record_batch::length)) {
  file.read_at(body_at, body_);
  ColumnReader reader(table, body_, where, unpacked_);
  for (const Field& field : fields)
    columns_.push_back(reader.column(field));
  for (const Column& column : columns_)
    if (column.length != length_) fail_binary(where, "its columns have different lengths");
}

OrderedJson Batch::row(std::int64_t i, const Dictionaries& dictionaries,
                       const std::string& at) const {
  OrderedJson record = OrderedJson::object();
  Values values(dictionaries, at);
  for (const Column& column : columns_)
    if (column.field->is_readable) record[column.field->name] = values.at(column, i);
  return record;
}

OrderedJson Batch::value(std::int64_t i, const Dictionaries& dictionaries,
                         const std::string& at) const {
  return Values(dictionaries, at).at(columns_.front(), i);
}

}  // namespace finetune::data::arrow_ipc
