#pragma once
// SPDX-License-Identifier: Apache-2.0
// A group of rows of a Parquet file, put together from its columns.

#include <memory>
#include <string>
#include <vector>

#include "data/records/detail/parquet_column.hpp"
#include "data/records/records.hpp"

namespace finetune::data::parquet_file {

class RowGroup {
 public:
  /// `group`: a RowGroup of parquet.thrift; `schema` and `where` outlive it. Throws: as LeafColumn.
  RowGroup(const core::File& file, const ThriftValue& group, const Schema& schema,
           const std::string& where);

  /// Throws: ErrorKind::input beginning with `at`, for texts that are not UTF-8, for columns that
  /// do not agree, and for a row that is longer than any.
  OrderedJson row(std::int64_t i, const std::string& at) const;

 private:
  const Schema& schema_;
  std::vector<std::unique_ptr<const LeafColumn>> leaves_;  ///< null: not read
};

}  // namespace finetune::data::parquet_file
