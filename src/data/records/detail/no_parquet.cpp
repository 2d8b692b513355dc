// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet.hpp"

#include "core/error.hpp"

namespace finetune::data {

bool has_parquet() {
  return false;
}

std::unique_ptr<Records> open_parquet(const std::filesystem::path& path) {
  core::fail(core::ErrorKind::environment,
             {path.string(), "this program was built without Parquet",
              "CMake did not find Arrow's C++ library",
              "Convert the file to JSONL (in Python: pandas.read_parquet(FILE).to_json(OUT, "
              "orient=\"records\", lines=True)), or build with -DParquet_ROOT=FOLDER."});
}

}  // namespace finetune::data
