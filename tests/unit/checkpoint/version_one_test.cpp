// SPDX-License-Identifier: Apache-2.0
// A checkpoint of format version 1, as an earlier program wrote it on two ranks (tests/golden):
// every tensor is the same to the bit.
#include <gtest/gtest.h>

#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/verify/verify.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "support/folders.hpp"
#include "support/ranks.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::version_one_test {
namespace {

namespace fs = std::filesystem;
using finetune::tests::world;

const fs::path golden = finetune::tests::source_folder() / "tests/golden/checkpoint";

/// A copy of it that nobody else may write into, whatever the umask of the checkout was.
void copy_golden(const fs::path& root) {
  const fs::path step = root / "step-0000000002";
  if (world().is_root()) {
    fs::copy(golden / "step-0000000002", step);
    fs::permissions(step, fs::perms::owner_all);
  }
  world().barrier();
}

/// Loads `part` of `parts` of every tensor, or all of it on every rank.
tests::Shard load_part(const FoundCheckpoint& found, int part, int parts) {
  tests::Shard shard;
  for (const TensorEntry& tensor : found.manifest.tensors) {
    const std::int64_t count = tensor.num_elements();
    const std::int64_t first = count * part / parts;
    shard.kinds.push_back(tensor.kind);
    shard.slices.push_back(
        {tensor.name, tensor.shape, tensor.dtype, first, count * (part + 1) / parts - first});
    shard.data.emplace_back(static_cast<std::size_t>(shard.slices.back().size_bytes()));
  }
  load(world(), found, shard.wanted());
  return shard;
}

void expect_checksums(const FoundCheckpoint& found) {
  const core::Json checksums = core::read_json(golden / "checksums.json", 1 << 20);
  const tests::Shard whole = load_part(found, 0, 1);
  EXPECT_EQ(checksums.size(), whole.slices.size());
  for (std::size_t i = 0; i < whole.slices.size(); ++i) {
    const std::string name = whole.kinds[i] + "/" + whole.slices[i].name;
    EXPECT_EQ(core::crc32c(whole.data[i]), checksums.at(name).get<std::uint32_t>()) << name;
  }
}

TEST(VersionOne, EveryTensorHasItsBits) {
  const tests::SharedFolder folder(world());
  copy_golden(folder.path());
  const auto found = find(world(), folder.path(), "auto");
  EXPECT_TRUE(found.has_value());
  if (!found) return;  // on every rank alike
  EXPECT_EQ(found->manifest.world_size, 2);
  EXPECT_EQ(found->manifest.boxes.size(), found->manifest.tensors.size());
  EXPECT_EQ(found->manifest.extents.size(), 42u);
  EXPECT_EQ(verify(folder.path()).problems, std::vector<std::string>());
  expect_checksums(*found);
}

TEST(VersionOne, SavedAgainInThisVersionItHasTheSameBits) {
  const tests::SharedFolder folder(world());
  copy_golden(folder.path());
  const FoundCheckpoint found = *find(world(), folder.path(), "auto");
  const tests::Shard shard = load_part(found, world().rank(), world().size());
  save(world(), world(), 0, folder.path(), 2, found.state.to_json(), shard.stored());
  expect_checksums(*find(world(), folder.path(), "auto"));
  const std::string text = tests::read_file(folder.path() / "step-0000000002/MANIFEST.json");
  EXPECT_NE(text.find("\"version\":2,"), std::string::npos);
}

}  // namespace
}  // namespace finetune::checkpoint::version_one_test
