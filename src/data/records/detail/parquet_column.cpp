// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet_column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "data/records/detail/unpack.hpp"

namespace finetune::data::parquet_file {
namespace {

constexpr std::int64_t rows_of_mark = 64;

// Fields of parquet.thrift.
namespace column_chunk {
constexpr int file_path = 1, metadata = 3;
constexpr int codec = 4, num_values = 5, compressed_bytes = 7, data_at = 9, dictionary_at = 11;
}  // namespace column_chunk
namespace page_header {
constexpr int type = 1, unpacked_bytes = 2, packed_bytes = 3, data = 5, dictionary = 7, data_v2 = 8;
constexpr int num_values = 1, encoding = 2, level_encoding = 3, repetition_encoding = 4;
constexpr int v2_encoding = 4, v2_definition_bytes = 5, v2_repetition_bytes = 6, v2_is_packed = 7;
}  // namespace page_header
enum PageType { data_page, index_page, dictionary_page, data_page_v2 };
constexpr int plain_dictionary = 2, rle = 3, rle_dictionary = 8;

Codec codec_of(int codec, const std::string& where) {
  switch (codec) {
    case 1:
      return Codec::snappy;
    case 2:
      return Codec::gzip;
    case 6:
      return Codec::zstd;
    case 7:
      return Codec::lz4_block;
    default:
      fail_binary(where, fmt::format("is compressed by the codec {}", codec),
                  "snappy (1), gzip (2), zstd (6) and lz4_raw (7) are read",
                  "Write the file again with one of these.");
  }
}

bool names_dictionary(std::int64_t encoding) {
  return encoding == plain_dictionary || encoding == rle_dictionary;
}

}  // namespace

Chunk chunk_of(const ThriftValue& column, std::int64_t file_bytes, const std::string& where) {
  const ThriftValue* metadata = column.find(column_chunk::metadata);
  if (metadata == nullptr || !column.text_of(column_chunk::file_path).empty())
    fail_binary(where, "a column lies in another file", "one file has all of its columns");
  Chunk chunk;
  chunk.at = metadata->number_of(column_chunk::data_at);
  const std::int64_t dictionary = metadata->number_of(column_chunk::dictionary_at);
  if (dictionary > 0) chunk.at = std::min(chunk.at, dictionary);
  chunk.bytes = metadata->number_of(column_chunk::compressed_bytes);
  chunk.num_entries = metadata->number_of(column_chunk::num_values);
  chunk.codec =
      static_cast<int>(std::clamp<std::int64_t>(metadata->number_of(column_chunk::codec), 0, 100));
  if (chunk.at < 0 || chunk.bytes < 0 || chunk.num_entries < 0 || chunk.at > file_bytes ||
      chunk.bytes > file_bytes - chunk.at)
    fail_binary(where, "a column leads out of the file", "it is truncated or damaged");
  return chunk;
}

struct LeafColumn::Page {
  ThriftValue header;
  Bytes body;
  std::int64_t unpacked_bytes;
};

LeafColumn::LeafColumn(const core::File& file, const Chunk& chunk, const Leaf& leaf,
                       std::int64_t num_rows, Room& room, const std::string& where)
    : leaf_(leaf), where_(where), codec_(chunk.codec) {
  room.take(chunk.bytes, 1);
  std::vector<std::byte>& bytes = owned_.emplace_back(static_cast<std::size_t>(chunk.bytes));
  file.read_at(chunk.at, bytes);
  Bytes rest = bytes;
  while (static_cast<std::int64_t>(num_entries_) < chunk.num_entries) {
    auto [header, size] = read_thrift(rest, where);
    rest = rest.subspan(size);
    const std::int64_t packed = header.number_of(page_header::packed_bytes);
    if (packed < 0 || packed > std::ssize(rest)) fail_binary(where, "a page ends early");
    const std::int64_t type = header.number_of(page_header::type);
    const std::int64_t unpacked_bytes = header.number_of(page_header::unpacked_bytes);
    const Page page{std::move(header), rest.first(static_cast<std::size_t>(packed)),
                    unpacked_bytes};
    rest = rest.subspan(static_cast<std::size_t>(packed));
    if (type == dictionary_page)
      read_dictionary(page, room);
    else if (type == data_page || type == data_page_v2)
      read_page(page, room);
  }
  index_rows(num_rows, room);
}

Bytes LeafColumn::unpacked(Bytes packed, std::int64_t size, Room& room) {
  if (codec_ == 0) return packed;
  room.take(size, 1);
  return owned_.emplace_back(
      unpack(codec_of(codec_, where_), packed, static_cast<std::size_t>(size), where_));
}

void LeafColumn::read_dictionary(const Page& page, Room& room) {
  const ThriftValue* its = page.header.find(page_header::dictionary);
  if (its == nullptr || has_dictionary_) fail_binary(where_, "a dictionary is damaged");
  has_dictionary_ = true;
  const Bytes bytes = unpacked(page.body, page.unpacked_bytes, room);
  // Its encoding is PLAIN by either name.
  read_values(0, leaf_.physical, bytes, its->number_of(page_header::num_values), dictionary_,
              owned_, room, where_);
}

void LeafColumn::read_levels(Bytes levels, int most, std::int64_t count,
                             std::vector<std::uint8_t>& out, Room& room) {
  room.take(count, 1);
  const std::size_t begin = out.size();
  read_hybrid(levels, static_cast<int>(std::bit_width(static_cast<unsigned>(most))), count, out,
              where_);
  if (std::any_of(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
                  [&](std::uint8_t level) { return level > most; }))
    fail_binary(where_, "a page has a level that no column has");
}

void LeafColumn::read_page(const Page& page, Room& room) {
  const ThriftValue* its = page.header.find(page_header::data_v2);
  const bool is_v2 = its != nullptr;
  if (!is_v2) its = page.header.find(page_header::data);
  if (its == nullptr) fail_binary(where_, "a page is damaged");
  const std::int64_t count = its->number_of(page_header::num_values);
  Bytes body;
  Bytes repetitions, definitions;
  const auto cut = [&](Bytes& from, std::int64_t size) {
    if (size < 0 || size > std::ssize(from)) fail_binary(where_, "a page ends early");
    const Bytes taken = from.first(static_cast<std::size_t>(size));
    from = from.subspan(static_cast<std::size_t>(size));
    return taken;
  };
  if (is_v2) {
    body = page.body;
    repetitions = cut(body, its->number_of(page_header::v2_repetition_bytes));
    definitions = cut(body, its->number_of(page_header::v2_definition_bytes));
    const std::int64_t size =
        page.unpacked_bytes - std::ssize(repetitions) - std::ssize(definitions);
    if (its->number_of(page_header::v2_is_packed, 1) != 0 && !body.empty())
      body = unpacked(body, size, room);
  } else {
    body = unpacked(page.body, page.unpacked_bytes, room);
    const auto levels = [&](int most, int encoding) {
      if (most == 0) return Bytes();
      if (its->number_of(encoding) != rle)
        fail_binary(where_, "a page has levels of an encoding that is not known",
                    "only RLE is written today", "Write the file again.");
      return cut(body, number_in<std::uint32_t>(cut(body, 4)));
    };
    repetitions = levels(leaf_.max_repetition, page_header::repetition_encoding);
    definitions = levels(leaf_.max_definition, page_header::level_encoding);
  }
  if (count < 0) fail_binary(where_, "a page is damaged");
  std::int64_t num_values = count;
  if (leaf_.max_repetition > 0)
    read_levels(repetitions, leaf_.max_repetition, count, repetitions_, room);
  if (leaf_.max_definition > 0) {
    read_levels(definitions, leaf_.max_definition, count, definitions_, room);
    num_values = std::count(definitions_.end() - count, definitions_.end(), leaf_.max_definition);
  }
  num_entries_ += static_cast<std::size_t>(count);
  const std::int64_t encoding =
      its->number_of(is_v2 ? page_header::v2_encoding : page_header::encoding);
  if (num_values == 0) return;
  if (names_dictionary(encoding))
    read_codes(body, num_values, room);
  else
    read_values(static_cast<int>(std::clamp<std::int64_t>(encoding, 0, 100)), leaf_.physical, body,
                num_values, values_, owned_, room, where_);
}

void LeafColumn::read_codes(Bytes bytes, std::int64_t count, Room& room) {
  constexpr int widest = 32;
  const int width = bytes.empty() ? widest + 1 : number_in<std::uint8_t>(bytes);
  if (width > widest || !has_dictionary_) fail_binary(where_, "a page has no dictionary");
  room.take(count, 2 * sizeof(Bytes));
  std::vector<std::uint64_t> codes;
  read_hybrid(bytes.subspan(1), width, count, codes, where_);
  const bool are_texts = leaf_.physical == Physical::bytes;
  const std::size_t size = are_texts ? dictionary_.texts.size() : dictionary_.numbers.size();
  for (const std::uint64_t code : codes) {
    if (code >= size) fail_binary(where_, "a value leads out of its dictionary");
    if (are_texts)
      values_.texts.push_back(dictionary_.texts[code]);
    else
      values_.numbers.push_back(dictionary_.numbers[code]);
  }
}

void LeafColumn::index_rows(std::int64_t num_rows, Room& room) {
  room.take(num_rows / rows_of_mark + 1, sizeof(Cursor));
  std::int64_t row = 0;
  for (Cursor at; !is_at_end(at); advance(at)) {
    if (repetition(at) != 0) {
      if (row == 0) fail_binary(where_, "a column begins within a row");
      continue;
    }
    if (row++ % rows_of_mark == 0) marks_.push_back(at);
  }
  if (row != num_rows)
    fail_binary(where_, fmt::format("a column has {} rows", row),
                fmt::format("its group has {}", num_rows));
}

LeafColumn::Cursor LeafColumn::row(std::int64_t i) const {
  Cursor at = marks_[static_cast<std::size_t>(i / rows_of_mark)];
  for (std::int64_t left = i % rows_of_mark; left > 0; --left) {
    advance(at);
    while (!is_at_end(at) && repetition(at) != 0)
      advance(at);
  }
  return at;
}

}  // namespace finetune::data::parquet_file
