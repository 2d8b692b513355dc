// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "support/folders.hpp"
#include "support/ranks.hpp"
#include "unit/weights/support.hpp"

namespace finetune::weights::open_test {
namespace {

const std::filesystem::path python_file =
    tests::source_folder() / "tests/golden/weights/python.safetensors";

TEST(ModelFilesOnRanks, OnlyTheRootNeedsThePathToOpen) {
  const auto& world = tests::world();
  const ModelFiles files =
      ModelFiles::open(world, world.is_root() ? python_file : "/nowhere/python.safetensors");
  EXPECT_EQ(files.names().size(), 8u);
  EXPECT_EQ(files.entry("cube").shape, (std::vector<std::int64_t>{2, 3, 5}));
}

TEST(ModelFilesOnRanks, RanksTogetherReadEveryByteOnce) {
  const auto& world = tests::world();
  const ModelFiles files = ModelFiles::open(world, python_file);
  const std::int64_t elements = 21;  // divides by no tested number of ranks but one
  const std::int64_t begin = elements * world.rank() / world.size();
  const std::int64_t end = elements * (world.rank() + 1) / world.size();
  std::vector<float> own(static_cast<std::size_t>(end - begin));
  files.read({"matrix", {7, 3}, core::DType::f32, begin, end - begin},
             std::as_writable_bytes(std::span(own)));
  for (std::int64_t i = begin; i < end; ++i)
    EXPECT_EQ(own[static_cast<std::size_t>(i - begin)], static_cast<float>(i) / 7);
  EXPECT_EQ(files.bytes_read(), 4 * (end - begin));
  EXPECT_EQ(world.all_reduce(files.bytes_read(), comm::Reduce::sum), 4 * elements);
}

TEST(ModelFilesOnRanks, EveryRankThrowsTheRootsError) {
  const auto& world = tests::world();
  std::optional<TestFolder> folder;
  std::filesystem::path path = python_file;  // fine on every rank but the root
  if (world.is_root()) {
    path = folder.emplace().path();
    folder->put("model.safetensors", file_of("{\"a\":{}}", ""));
  }
  std::string message;
  try {
    ModelFiles::open(world, path);
  } catch (const core::Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("model.safetensors: tensor \"a\" is incomplete"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace finetune::weights::open_test
