// SPDX-License-Identifier: Apache-2.0
// Built only where Arrow's library is not.
#include <gtest/gtest.h>

#include "data/records/detail/parquet.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::no_parquet_test {
namespace {

TEST(NoParquet, IsToldWithWhatToDo) {
  const tests::TemporaryFolder folder;
  EXPECT_FALSE(has_parquet());
  EXPECT_EQ(
      tests::refusal([&] { open_records(folder.write("d.parquet", "PAR1")); }, folder.path()),
      "69: d.parquet: this program was built without Parquet (CMake did not find Arrow's C++ "
      "library). Convert the file to JSONL (in Python: pandas.read_parquet(FILE).to_json(OUT, "
      "orient=\"records\", lines=True)), or build with -DParquet_ROOT=FOLDER.");
}

}  // namespace
}  // namespace finetune::data::no_parquet_test
