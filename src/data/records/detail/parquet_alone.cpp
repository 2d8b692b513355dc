// SPDX-License-Identifier: Apache-2.0
// Where Arrow's library is not.
#include "data/records/detail/parquet.hpp"
#include "data/records/detail/parquet_records.hpp"

namespace finetune::data {

std::unique_ptr<Records> open_parquet(const std::filesystem::path& path) {
  return std::make_unique<ParquetFileRecords>(core::File(path, core::File::Mode::read));
}

}  // namespace finetune::data
