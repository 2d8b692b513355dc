// SPDX-License-Identifier: Apache-2.0
// Every kind of damage to a checkpoint on disk is found.
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/verify/verify.hpp"
#include "core/error.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::damage_test {
namespace {

namespace fs = std::filesystem;

class Damage : public testing::Test {
 protected:
  Damage() : report_(tests::save_model({}, folder_.path(), 7, model_)) {}

  fs::path file(const char* name) const { return report_.folder / name; }

  /// Verifies `path` with `text` as content, then restores it.
  Verification verify_with(const fs::path& path, const std::string& text) const {
    const std::string good = tests::read_file(path);
    tests::write_file(path, text);
    Verification result = verify(folder_.path());
    tests::write_file(path, good);
    return result;
  }

  std::vector<tests::TestTensor> model_ = {{"param", "a", {11, 3}, core::DType::f32},
                                           {"param", "b", {7}, core::DType::bf16}};
  tests::SharedFolder folder_;
  SaveReport report_;
};

TEST_F(Damage, AFlippedBitInAnyByteOfAnyFileIsFound) {
  for (const char* name : {"node00000.h5", "state.json", "MANIFEST.json"}) {
    const auto size = static_cast<std::int64_t>(fs::file_size(file(name)));
    ASSERT_GT(size, 0);
    for (std::int64_t byte = 0; byte < size; ++byte) {
      tests::flip_bit(file(name), byte, static_cast<int>(byte % 8));
      EXPECT_EQ(verify(folder_.path()).problems.size(), 1u) << name << " byte " << byte;
      tests::flip_bit(file(name), byte, static_cast<int>(byte % 8));
    }
  }
  EXPECT_TRUE(verify(folder_.path()).problems.empty());
}

TEST_F(Damage, ALoadFindsEveryFlipInTheBytesItReads) {
  const FoundCheckpoint found = open(report_.folder);
  tests::Shard shard = tests::cut(model_, 0, 1);
  for (const Extent& extent : found.manifest.extents) {
    const std::int64_t bytes = found.manifest.extent_bytes(extent);
    for (std::int64_t byte = 0; byte < bytes; ++byte) {
      tests::flip_bit(file("node00000.h5"), extent.position + byte, static_cast<int>(byte % 8));
      EXPECT_THROW(load({}, found, shard.wanted()), core::Error) << "byte " << byte;
      tests::flip_bit(file("node00000.h5"), extent.position + byte, static_cast<int>(byte % 8));
    }
  }
  EXPECT_NO_THROW(load({}, found, shard.wanted()));
}

TEST_F(Damage, ADamagedBlockIsNamedWithFileTensorAndBlock) {
  const FoundCheckpoint found = open(report_.folder);
  const Extent& a = found.manifest.extents[0];
  tests::flip_bit(file("node00000.h5"), a.position + 64, 0);
  const auto problems = verify(report_.folder).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("step-0000000007/node00000.h5: block 1 of param a"), std::string::npos)
      << problems[0];
}

TEST_F(Damage, TruncatedAndLengthenedFilesAreFoundBeforeTheyAreRead) {
  for (const char* name : {"node00000.h5", "state.json", "MANIFEST.json"}) {
    const std::string good = tests::read_file(file(name));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
      EXPECT_EQ(verify_with(file(name), good.substr(0, size)).problems.size(), 1u) << name << size;
    }
    EXPECT_EQ(verify_with(file(name), good + "x").problems.size(), 1u) << name;
    EXPECT_EQ(verify_with(file(name), good + '\0').problems.size(), 1u) << name;
  }
  fs::resize_file(file("node00000.h5"), fs::file_size(file("node00000.h5")) - 1);
  EXPECT_THROW(find({}, folder_.path(), "auto"), core::Error);
}

TEST_F(Damage, AMissingFileIsFound) {
  for (const char* name : {"node00000.h5", "state.json", "MANIFEST.json"}) {
    fs::rename(file(name), file("elsewhere"));
    EXPECT_EQ(verify(folder_.path()).problems.size(), 1u) << name;
    EXPECT_THROW(find({}, folder_.path(), "auto"), core::Error) << name;
    fs::rename(file("elsewhere"), file(name));
  }
}

TEST_F(Damage, FiveHundredRandomFlipsOfTheManifestAreRefused) {
  const std::string good = tests::read_file(file("MANIFEST.json"));
  std::mt19937_64 random(500);
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    const std::size_t byte = random() % bad.size();
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << random() % 8));
    EXPECT_THROW(parse_manifest(bad, "test"), core::Error) << "byte " << byte;
  }
}

TEST_F(Damage, FilesOfAnotherCheckpointAreFound) {
  tests::save_model({}, folder_.path(), 8, model_);
  const fs::path other = folder_.path() / "step-0000000008";
  for (const char* name : {"node00000.h5", "state.json", "MANIFEST.json"}) {
    const Verification result = verify_with(file(name), tests::read_file(other / name));
    EXPECT_FALSE(result.problems.empty()) << name;
  }
}

TEST_F(Damage, LinksAreNotFollowed) {
  for (const char* name : {"node00000.h5", "state.json", "MANIFEST.json"}) {
    fs::rename(file(name), folder_.path() / "elsewhere");
    fs::create_symlink(folder_.path() / "elsewhere", file(name));
    EXPECT_EQ(verify(report_.folder).problems.size(), 1u) << name;
    EXPECT_THROW(open(report_.folder), core::Error) << name;
    fs::remove(file(name));
    fs::rename(folder_.path() / "elsewhere", file(name));
  }
  EXPECT_NO_THROW(open(report_.folder));
}

TEST_F(Damage, TheSameTensorsGiveTheSameBytes) {
  const std::string hdf5 = tests::read_file(file("node00000.h5"));
  const std::string manifest = tests::read_file(file("MANIFEST.json"));
  tests::save_model({}, folder_.path(), 7, model_);
  EXPECT_EQ(tests::read_file(file("node00000.h5")), hdf5);
  EXPECT_EQ(tests::read_file(file("MANIFEST.json")), manifest);
}

}  // namespace
}  // namespace finetune::checkpoint::damage_test
