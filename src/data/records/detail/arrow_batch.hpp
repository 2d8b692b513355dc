#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rows of Arrow that were read together: their buffers, and their values as JSON.

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/records/detail/arrow_schema.hpp"
#include "data/records/records.hpp"

namespace finetune::data::arrow_ipc {

/// A column's buffers, as views of the batch's bytes.
struct Column {
  const Field* field = nullptr;
  std::int64_t length = 0;
  bool has_nulls = false;
  std::span<const std::byte> validity = {};  ///< a bit each, from the lowest; set: not null
  std::span<const std::byte> places = {};    ///< of lists and texts
  std::span<const std::byte> values = {};
  std::vector<std::span<const std::byte>> views = {};  ///< of Kind::text_view
  std::vector<Column> children = {};
};

class Batch;
/// By their ids.
using Dictionaries = std::map<std::int64_t, std::shared_ptr<const Batch>>;

/// A record batch in memory.
class Batch {
 public:
  /// `table`: the RecordBatch; `body`: where its buffers lie in `file`. `fields` and `where`
  /// outlive it. Throws: ErrorKind::input beginning with `where` for buffers that lead out of the
  /// body, that are not decompressed to the size they say, or that are too few.
  Batch(const FlatTable& table, const core::File& file, std::int64_t body_at,
        std::int64_t body_bytes, const std::vector<Field>& fields, const std::string& where);

  std::int64_t size() const { return length_; }

  /// The row `i` of the readable columns. Throws: ErrorKind::input beginning with `at`.
  OrderedJson row(std::int64_t i, const Dictionaries& dictionaries, const std::string& at) const;

  /// The value `i` of the first column.
  OrderedJson value(std::int64_t i, const Dictionaries& dictionaries, const std::string& at) const;

 private:
  std::vector<std::byte> body_;
  std::vector<std::vector<std::byte>> unpacked_;
  std::int64_t length_ = 0;
  std::vector<Column> columns_;
};

}  // namespace finetune::data::arrow_ipc
