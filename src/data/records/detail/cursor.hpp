#pragma once
// SPDX-License-Identifier: Apache-2.0
// A data file byte by byte, as the passes read it that look for where its entries begin.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file.hpp"

namespace finetune::data {

inline constexpr int end_of_file = -1;

/// An entry's place in its file: bytes [offset, offset + length), beginning at line and column
/// (both from 1, the column in bytes).
struct JsonEntry {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t line = 1;
  std::int64_t column = 1;
};

/// No entry is longer than this: what is longer is not a data set but a mistake or an attack.
inline constexpr std::int64_t longest_entry_bytes = std::int64_t{64} << 20;

/// Reads a file byte by byte through a buffer and knows its line and column.
class Cursor {
 public:
  explicit Cursor(const core::File& file) : Cursor(file, {}) {}
  /// Stands where an entry begins.
  Cursor(const core::File& file, const JsonEntry& entry)
      : file_(file),
        size_bytes_(file.size_bytes()),
        buffer_end_(entry.offset),
        line_(entry.line),
        column_(entry.column) {}

  int peek() {
    if (next_ == buffer_.size() && !refill()) return end_of_file;
    return static_cast<unsigned char>(buffer_[next_]);
  }

  int take() {
    const int byte = peek();
    if (byte == end_of_file) return byte;
    ++next_;
    ++column_;
    if (byte == '\n') {
      ++line_;
      column_ = 1;
    }
    return byte;
  }

  void skip_space() {
    for (int byte = peek(); byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
         byte = peek()) {
      take();
    }
  }

  /// Takes bytes until a line end or the end of the file, which stay.
  void skip_to_line_end() {
    while (peek() != end_of_file) {
      const std::size_t end = std::min(buffer_.find('\n', next_), buffer_.size());
      column_ += static_cast<std::int64_t>(end - next_);
      next_ = end;
      if (end < buffer_.size()) return;
    }
  }

  /// Windows editors put U+FEFF first; it is not part of the text and has no column.
  void skip_byte_order_mark() {
    if (peek() != 0xEF || !std::string_view(buffer_).starts_with("\xEF\xBB\xBF")) return;
    next_ += 3;
  }

  std::int64_t offset() const {
    return buffer_end_ - static_cast<std::int64_t>(buffer_.size() - next_);
  }
  JsonEntry here() const { return {offset(), 0, line_, column_}; }
  const core::File& file() const { return file_; }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  bool refill() {
    // Small at first: who reads a few entries need not read a megabyte.
    constexpr std::int64_t least_bytes = 1 << 16, most_bytes = 1 << 20;
    const std::int64_t buffer_bytes =
        std::clamp(2 * static_cast<std::int64_t>(buffer_.size()), least_bytes, most_bytes);
    const std::int64_t n = std::min(buffer_bytes, size_bytes_ - buffer_end_);
    if (n <= 0) return false;
    buffer_.resize(static_cast<std::size_t>(n));
    file_.read_at(buffer_end_, std::as_writable_bytes(std::span(buffer_)));
    buffer_end_ += n;
    next_ = 0;
    return true;
  }

  const core::File& file_;
  std::int64_t size_bytes_;
  std::int64_t buffer_end_;  // offset in the file of the byte after the buffer
  std::string buffer_;
  std::size_t next_ = 0;
  std::int64_t line_;
  std::int64_t column_;
};

}  // namespace finetune::data
