// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose files are cut, flipped, swapped or missing: `finetune verify` names the file,
// and a start goes on from an older one, to the same bits, or says why it cannot.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "checkpoint/load/find.hpp"
#include "checkpoint/verify/verify.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "fault/material.hpp"

namespace finetune::tests::damage_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t newest = Material::newest;

class Damage : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    one_ = std::make_unique<Material>("damage.one", 1, "node");
    two_ = std::make_unique<Material>("damage.two", 2, "rank");
  }
  static void TearDownTestSuite() {
    one_.reset();
    two_.reset();
  }
  void SetUp() override {
    one_->restore();
    two_->restore();
  }

  static const Material& one() { return *one_; }
  static const Material& two() { return *two_; }

 private:
  static inline std::unique_ptr<Material> one_;
  static inline std::unique_ptr<Material> two_;
};

void change(const fs::path& file, const std::function<void(std::string&)>& f) {
  std::string bytes = read_file(file);
  f(bytes);
  write_file(file, bytes);
}

void flip_bit(const fs::path& file, std::size_t bit) {
  change(file, [&](std::string& bytes) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  });
}

/// What verification of the newest checkpoint finds; expects that all of it names `file`.
std::vector<std::string> expect_found(const Material& material, const std::string& file) {
  const auto problems = checkpoint::verify(material.folder()).problems;
  EXPECT_FALSE(problems.empty());
  for (const std::string& problem : problems)
    EXPECT_EQ(problem.find((material.folder() / file).string()), 0u) << problem;
  return problems;
}

/// The step that a start would go on from, as far as manifest, state and sizes tell.
std::int64_t chosen_step(const Material& material) {
  testing::internal::CaptureStderr();
  const std::int64_t step = checkpoint::open(material.root()).step;
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(warnings, "is skipped"), static_cast<int>(newest - step)) << warnings;
  return step;
}

TEST_F(Damage, OfLengthsIsSeenBeforeAnythingIsRead) {
  for (const std::string& file : one().files()) {
    const fs::path path = one().folder() / file;
    const std::string whole = read_file(path);
    std::vector<std::string> variants = {"", whole.substr(0, 1), whole.substr(0, whole.size() / 2),
                                         whole.substr(0, whole.size() - 1), whole + 'x'};
    for (const std::string& bytes : variants) {
      SCOPED_TRACE(file + " of " + std::to_string(bytes.size()) + " bytes");
      write_file(path, bytes);
      expect_found(one(), file);
      EXPECT_EQ(chosen_step(one()), newest - 1);
    }
    write_file(path, whole);
  }
  EXPECT_TRUE(checkpoint::verify(one().root()).problems.empty());

  fs::resize_file(one().folder() / "node00000.h5", 100'000);
  const Outcome outcome = one().expect_resumes_from(newest - 1);
  EXPECT_EQ(count(outcome.err, "warning: step-0000000004 is skipped: "), 1) << outcome.err;
}

TEST_F(Damage, OfOneBitAnywhereIsFoundAndItsFileNamed) {
  const int flips = count_from_environment("FINETUNE_FLIPS", 100);
  std::mt19937_64 random(1);
  for (int i = 0; i < flips; ++i) {
    const std::string& file = two().files()[static_cast<std::size_t>(i) % two().files().size()];
    const fs::path path = two().folder() / file;
    const std::size_t bit = random() % (8 * fs::file_size(path));
    SCOPED_TRACE(file + " bit " + std::to_string(bit));
    flip_bit(path, bit);
    EXPECT_EQ(expect_found(two(), file).size(), 1u);
    flip_bit(path, bit);
  }
  EXPECT_TRUE(checkpoint::verify(two().root()).problems.empty());
}

TEST_F(Damage, OfOneBitIsNeverTrainedOn) {
  const int flips = count_from_environment("FINETUNE_FLIP_RESUMES", 5);
  std::mt19937_64 random(2);
  for (int i = 0; i < flips; ++i) {
    one().restore();
    // Mostly the file with the tensors.
    const std::string file =
        i % 4 == 0 ? one().files()[random() % one().files().size()] : "node00000.h5";
    const fs::path path = one().folder() / file;
    const std::size_t bit = random() % (8 * fs::file_size(path));
    SCOPED_TRACE(file + " bit " + std::to_string(bit));
    flip_bit(path, bit);
    // What HDF5 alone reads does not touch training.
    const auto problems = expect_found(one(), file);
    const bool is_read = problems.at(0).find("outside the tensors") == std::string::npos;
    one().expect_resumes_from(is_read ? newest - 1 : newest);
  }
}

TEST_F(Damage, OfTheManifestMakesItNone) {
  const int flips = count_from_environment("FINETUNE_MANIFEST_FLIPS", 500);
  std::mt19937_64 random(3);
  const fs::path path = one().folder() / "MANIFEST.json";
  for (int i = 0; i < flips; ++i) {
    const std::size_t bit = random() % (8 * fs::file_size(path));
    SCOPED_TRACE("bit " + std::to_string(bit));
    flip_bit(path, bit);
    expect_found(one(), "MANIFEST.json");
    flip_bit(path, bit);
  }
  flip_bit(path, 8 * (fs::file_size(path) / 2));
  one().expect_resumes_from(newest - 1);
}

TEST_F(Damage, OfAManifestOfAnotherStepIsSeen) {
  fs::copy_file(one().folder(newest - 1) / "MANIFEST.json", one().folder() / "MANIFEST.json",
                fs::copy_options::overwrite_existing);
  EXPECT_FALSE(checkpoint::verify(one().folder()).problems.empty());
  EXPECT_EQ(chosen_step(one()), newest - 1);
}

/// Replaces the first `from` of a manifest; `is_signed` also mends the fingerprint, as somebody who
/// means harm would.
void edit_manifest(const fs::path& folder, const std::string& from, const std::string& to,
                   bool is_signed) {
  change(folder / "MANIFEST.json", [&](std::string& text) {
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string key = "\"fingerprint\":\"";
    const auto sign = text.rfind(key);
    const std::string fingerprint = core::fingerprint(text.substr(0, sign));
    if (is_signed) text.replace(sign + key.size(), fingerprint.size(), fingerprint);
  });
}

TEST_F(Damage, OfAnEditedManifestIsRefused) {
  struct Edit {
    std::string from;
    std::string to;
    bool is_signed;
  };
  const std::vector<Edit> edits = {
      {"\"step\":4", "\"step\":5", false},
      {"\"step\":4", "\"step\":5", true},
      {"[\"node00000.h5\",", "[\"../step-0000000003/node00000.h5\",", true},
      {"[\"node00000.h5\",", "[\"/etc/passwd\",", true},
      {"[512,64]", "[512,4611686018427387904]", true},
      {"[512,64]", "[512,65]", true},
      {"\"slices\":[\n[0,0,0,", "\"slices\":[\n[0,0,1,", true},
      {"\"slices\":[\n[0,0,0,", "\"slices\":[\n[0,7,0,", true},
      {"\"block_bytes\":1048576", "\"block_bytes\":0", true},
      {"\"version\":2", "\"version\":3", true},
  };
  for (const Edit& edit : edits) {
    SCOPED_TRACE(edit.to);
    one().restore();
    edit_manifest(one().folder(), edit.from, edit.to, edit.is_signed);
    EXPECT_FALSE(checkpoint::verify(one().folder()).problems.empty());
    EXPECT_EQ(chosen_step(one()), newest - 1);
  }
  // The mended fingerprint itself is right: an edit that changes nothing passes.
  one().restore();
  edit_manifest(one().folder(), "\"step\":4", "\"step\":4", true);
  EXPECT_EQ(chosen_step(one()), newest);
}

TEST_F(Damage, OfTheNewestTwoGoesBackToTheThird) {
  flip_bit(one().folder(4) / "node00000.h5", 8'000'000);
  fs::remove(one().folder(3) / "MANIFEST.json");
  const Outcome outcome = one().expect_resumes_from(2);
  EXPECT_EQ(count(outcome.err, "warning: step-0000000004 is skipped: "), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "warning: step-0000000003 is skipped: "), 1) << outcome.err;
}

TEST_F(Damage, OfAllCheckpointsEndsTheStart) {
  for (std::int64_t step = 2; step <= newest; ++step)
    flip_bit(one().folder(step) / "node00000.h5", 8'000'000);
  const std::string metrics = read_file(one().root() / "metrics.jsonl");
  one().expect_refused(exits::unusable_input, "output: none of the 3 checkpoints");
  EXPECT_EQ(steps_on_disk(one().job()), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(read_file(one().root() / "metrics.jsonl"), metrics);
}

TEST_F(Damage, OfACheckpointThatWasNamedEndsTheStart) {
  flip_bit(one().folder() / "node00000.h5", 8'000'000);
  one().expect_refused(exits::unusable_input, "step-0000000004",
                       {"checkpoint.resume=step-0000000004"});
}

TEST_F(Damage, IsNeitherRemovedNorCounted) {
  flip_bit(one().folder() / "MANIFEST.json", 1000);
  const Outcome outcome =
      run(one().job(), 1, {}, {"checkpoint.save_steps=0", "checkpoint.save_total_limit=2"});
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  EXPECT_EQ(steps_on_disk(one().job()), (std::vector<std::int64_t>{3, 4, 6}));
}

TEST_F(Damage, OfAShardThatIsMissingOrOfAnotherRankOrStep) {
  const fs::path first = two().folder() / "rank00000.h5";
  const fs::path second = two().folder() / "rank00001.h5";
  fs::remove(second);
  expect_found(two(), "rank00001.h5");
  EXPECT_EQ(chosen_step(two()), newest - 1);

  two().restore();
  fs::rename(first, two().folder() / "kept");
  fs::rename(second, first);
  fs::rename(two().folder() / "kept", second);
  EXPECT_FALSE(checkpoint::verify(two().folder()).problems.empty());
  two().expect_resumes_from(newest - 1);

  two().restore();
  fs::copy_file(two().folder(newest - 1) / "rank00001.h5", second,
                fs::copy_options::overwrite_existing);
  expect_found(two(), "rank00001.h5");
  two().expect_resumes_from(newest - 1);
}

TEST_F(Damage, OfFoldersThatAreNoCheckpointsIsPassedOver) {
  fs::create_directory(one().folder(7));       // empty
  fs::copy(one().folder(3), one().folder(8));  // a copy under another step's name
  write_file(one().folder(9), "a file");       // no folder at all
  const fs::path stale = one().root() / ".tmp-step-0000000009.AbCdEf";
  fs::copy(one().folder(4), stale, fs::copy_options::recursive);
  const Outcome outcome = one().expect_resumes_from(newest);
  EXPECT_EQ(count(outcome.err, "warning: step-0000000007 is skipped: "), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "warning: step-0000000008 is skipped: "), 1) << outcome.err;
  EXPECT_FALSE(fs::exists(stale));
}

TEST_F(Damage, IsToldByTheCommandToo) {
  flip_bit(two().folder() / "rank00001.h5", 4'000'000);
  fs::resize_file(two().folder(3) / "rank00000.h5", 10);
  const Outcome outcome = verify(two().job());
  EXPECT_EQ(outcome.exit_code, exits::unusable_input);
  EXPECT_EQ(count(outcome.err, "error: output/step-0000000004/rank00001.h5"), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "error: output/step-0000000003/rank00000.h5"), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "error: "), 2) << outcome.err;
}

}  // namespace
}  // namespace finetune::tests::damage_test
