#pragma once
// SPDX-License-Identifier: Apache-2.0
// A data file byte by byte, as the passes read it that look for where its entries begin.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file.hpp"
#include "data/records/detail/json_index.hpp"

namespace finetune::data {

inline constexpr int end_of_file = -1;

/// Reads a file byte by byte through a buffer and knows its line and column.
class Cursor {
 public:
  explicit Cursor(const core::File& file) : file_(file), size_bytes_(file.size_bytes()) {}

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
    constexpr std::int64_t buffer_bytes = 1 << 20;
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
  std::int64_t buffer_end_ = 0;  // offset in the file of the byte after the buffer
  std::string buffer_;
  std::size_t next_ = 0;
  std::int64_t line_ = 1;
  std::int64_t column_ = 1;
};

}  // namespace finetune::data
