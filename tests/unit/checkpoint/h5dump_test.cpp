// SPDX-License-Identifier: Apache-2.0
// The files are ordinary HDF5 files for those who want to look into them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::h5dump_test {
namespace {

TEST(H5dump, ReadsHeadersAndData) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no h5dump here";
  const tests::SharedFolder folder;
  const std::vector<tests::TestTensor> model = {
      {"param", "layers.0.w", {11, 3}, core::DType::f32},
      {"exp_avg", "layers.0.w", {11, 3}, core::DType::f16}};
  const SaveReport report = tests::save_model({}, folder.path(), 1, model);
  const std::string file = (report.folder / "node00000.h5").string();
  const std::string out = (folder.path() / "out").string();

  ASSERT_EQ(std::system(("h5dump -A " + file + " > " + out).c_str()), 0);
  const std::string headers = tests::read_file(out);
  for (const char* part :
       {"GROUP \"param\"", "GROUP \"layers.0.w\"", "DATASET \"0\"", "ATTRIBUTE \"global_shape\"",
        "ATTRIBUTE \"offset\"", "\"F32\"", "(0): 11, 3", "H5T_IEEE_F32LE"})
    EXPECT_NE(headers.find(part), std::string::npos) << part << "\n" << headers;

  for (const tests::TestTensor& tensor : model) {
    const std::string dump = "h5dump -d /" + tensor.kind + "/" + tensor.name + "/0 -b FILE -o " +
                             out + " " + file + " > /dev/null";
    ASSERT_EQ(std::system(dump.c_str()), 0);
    const std::string bytes = tests::read_file(out);
    ASSERT_EQ(std::ssize(bytes), 33 * core::size_bytes(tensor.dtype));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      EXPECT_EQ(std::byte(bytes[i]), tests::byte_of(tensor, static_cast<std::int64_t>(i), 1)) << i;
  }
}

TEST(H5dump, ASliceOfABoxHasItInNameAndAttributes) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no h5dump here";
  const tests::SharedFolder folder;
  const std::vector<tests::TestTensor> model = {{"param", "w", {5, 6}, core::DType::u8}};
  tests::Shard shard = tests::cut(model, {{1, 2}, 2}, 0, 1);
  tests::fill(model, shard, 1);
  const SaveReport report = save({}, {}, 0, folder.path(), 1, core::Json::object(), shard.stored());
  const std::string out = (folder.path() / "out").string();
  ASSERT_EQ(
      std::system(("h5dump -A " + (report.folder / "node00000.h5").string() + " > " + out).c_str()),
      0);
  const std::string headers = tests::read_file(out);
  for (const char* part :
       {"DATASET \"0,0+0\"", "DATASET \"0,0+7\"", "DATASET \"0,3+0\"", "DATASET \"0,3+7\"",
        "ATTRIBUTE \"box_begin\"", "(0): 0, 3", "ATTRIBUTE \"box_extent\"", "(0): 5, 3"})
    EXPECT_NE(headers.find(part), std::string::npos) << part << "\n" << headers;
}

}  // namespace
}  // namespace finetune::checkpoint::h5dump_test
