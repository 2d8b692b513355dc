// SPDX-License-Identifier: Apache-2.0
// `finetune verify MODEL`: folders of models as they arrive, whole and otherwise.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.hpp"
#include "core/file_hash.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::verify_model_test {
namespace {

namespace fs = std::filesystem;

/// A folder with the quickstart's model in it.
fs::path model_in(const std::string& name) {
  const fs::path folder = build_folder() / "tests/restart_jobs" / ("verify_model." + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(source_folder() / "inputs/quickstart/model", folder / "model");
  for (const auto& entry : fs::directory_iterator(folder / "model"))
    fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
  return folder;
}

Outcome verify(const fs::path& folder, const std::string& path = "model") {
  return run_finetune(1, {"verify", path}, folder);
}

TEST(VerifyModel, SaysWhatAGoodOneHolds) {
  const fs::path folder = model_in("good");
  Outcome outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  for (const char* part : {"weights    llama: ", " parameters, ", "tokenizer  ", "template   none",
                           "hashes     none came with it", "model: good"})
    EXPECT_EQ(count(outcome.text(), part), 1) << part << "\n" << outcome.text();
  const core::File weights(folder / "model/model.safetensors", core::File::Mode::read);
  write_file(folder / "model/SHA256SUMS", core::sha256_of(weights) + "  model.safetensors\n");
  outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "hashes     of 1 file equal"), 1) << outcome.text();
}

TEST(VerifyModel, SaysThatItsConfigurationIsMissing) {
  const fs::path folder = model_in("unconfigured");
  fs::remove(folder / "model/config.json");
  const Outcome outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
  EXPECT_EQ(
      count(outcome.text(), "model: has no config.json (with model.safetensors it is a model)"), 1)
      << outcome.text();
}

TEST(VerifyModel, NamesTheShardsAndTheIndexThatAreMissing) {
  const fs::path folder = model_in("shards");
  const fs::path model = folder / "model";
  fs::rename(model / "model.safetensors", model / "model-00002-of-00004.safetensors");
  write_file(model / "model-00004-of-00004.safetensors", "");
  const Outcome outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
  EXPECT_EQ(count(outcome.text(),
                  "model: lacks model.safetensors.index.json, model-00001-of-00004.safetensors, "
                  "model-00003-of-00004.safetensors (2 of its 4 safetensors files are there)"),
            1)
      << outcome.text();
  EXPECT_EQ(count(outcome.text(), ": good"), 0) << outcome.text();
}

TEST(VerifyModel, TellsAllThatIsWrong) {
  const fs::path folder = model_in("bad");
  const fs::path model = folder / "model", weights = model / "model.safetensors";
  const core::File whole(weights, core::File::Mode::read);
  write_file(model / "SHA256SUMS", core::sha256_of(whole) + "  model.safetensors\n" +
                                       std::string(64, '0') + "  config.json\n");
  fs::create_directories(model / ".cache/huggingface/download");
  write_file(model / ".cache/huggingface/download/x.incomplete", "half of it");
  fs::resize_file(weights, fs::file_size(weights) - 1);
  fs::remove(model / "tokenizer.json");
  const Outcome outcome = verify(folder);
  EXPECT_TRUE(outcome.exit_code == 65) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "is a part of a download"), 1) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "model.safetensors: is not the file that was published"), 1)
      << outcome.text();
  EXPECT_EQ(count(outcome.text(), "config.json: is not the file that was published"), 1)
      << outcome.text();
  EXPECT_GE(count(outcome.text(), "tokenizer"), 1) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "error: "), 5) << outcome.text();
  EXPECT_EQ(count(outcome.text(), ": good"), 0) << outcome.text();
}

TEST(VerifyModel, OfAnotherShapeIsNotGood) {
  const fs::path folder = model_in("shape");
  core::Json config = core::read_json(folder / "model/config.json", 1 << 20);
  config["intermediate_size"] = config["intermediate_size"].get<int>() + 8;
  config["vocab_size"] = 100;
  write_file(folder / "model/config.json", config.dump());
  const Outcome outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "error: "), 2) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "the model's embedding 100 rows"), 1) << outcome.text();
}

/// As the hub's tool keeps it: read in place, by its name.
TEST(VerifyModel, IsFoundInTheCache) {
  const fs::path folder = model_in("cache");
  const std::string commit(40, 'c');
  const fs::path cache = folder / "models--made--up", version = cache / "snapshots" / commit;
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "refs");
  fs::create_directories(version);
  write_file(cache / "refs/main", commit);
  for (const auto& entry : fs::directory_iterator(folder / "model")) {
    const std::string name = entry.path().filename();
    const core::File file(entry.path(), core::File::Mode::read);
    const std::string blob =
        name == "model.safetensors" ? core::sha256_of(file) : core::git_name_of(file);
    fs::copy_file(entry.path(), cache / "blobs" / blob);
    fs::create_symlink("../../blobs/" + blob, version / name);
  }
  Outcome outcome = verify(folder, "models--made--up");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "hashes     of "), 1) << outcome.text();
  outcome =
      run_finetune(1, {"generate", "models--made--up", "A river", "--max-tokens", "2"}, folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const Job job("verify_model.run",
                {"train.max_steps=1", "model.path=" + cache.string(), "data.max_seq_length=64"});
  outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::verify_model_test
