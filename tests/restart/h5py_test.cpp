// SPDX-License-Identifier: Apache-2.0
// Checkpoints are ordinary HDF5 files for Python: every tensor read with h5py is the manifest's and
// the export's.
#include <gtest/gtest.h>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::h5py_test {
namespace {

/// A Python that has h5py; empty if there is none.
std::string python_with_h5py(const Job& job) {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const Outcome outcome = run_program({"env", python, "-c", "import h5py, numpy"}, job.folder());
    if (outcome.exit_code == 0) return python;
  }
  return "";
}

class H5py : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Precisions, H5py, testing::Values("32-true", "bf16-true"),
                         [](const auto& info) {
                           return std::string(info.param).starts_with("32") ? "F32" : "BF16";
                         });

TEST_P(H5py, ReadsEveryTensorAsManifestAndExportHaveIt) {
  // Three ranks with a file each: tensors in several slices.
  const Job job("h5py." + std::string(GetParam()),
                {"precision.mode=" + std::string(GetParam()), "train.max_steps=2",
                 "train.global_batch=3", "train.micro_batch=1", "checkpoint.files=rank"});
  const std::string python = python_with_h5py(job);
  if (python.empty()) GTEST_SKIP() << "no Python with h5py here (Debian: python3-h5py)";
  const Outcome outcome = job.run(3);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const Outcome exported =
      run_finetune(1, {"export", "output", "exported", "--dtype", "float32"}, job.folder());
  ASSERT_EQ(exported.exit_code, 0) << exported.text();

  const std::vector<std::string> words = {"env", python,
                                          source_folder() / "tests/restart/read_with_h5py.py",
                                          "output/step-0000000002", "exported/model.safetensors"};
  const Outcome good = run_program(words, job.folder());
  EXPECT_EQ(good.exit_code, 0) << good.text();
  EXPECT_EQ(count(good.out, "are as manifest and export have them"), 1) << good.text();

  // It would notice: one bit of the last tensor's last byte.
  const auto file = job.output() / "step-0000000002/rank00001.h5";
  const core::Json manifest =
      core::read_json(job.output() / "step-0000000002/MANIFEST.json", 1 << 24);
  std::size_t position = 0;
  for (const core::Json& slice : manifest.at("slices"))
    if (slice.at(1) == 1) position = slice.at(4).get<std::size_t>();
  std::string bytes = read_file(file);
  bytes.at(position) = static_cast<char>(bytes.at(position) ^ 1);
  write_file(file, bytes);
  EXPECT_EQ(run_program(words, job.folder()).exit_code, 1);
}

}  // namespace
}  // namespace finetune::tests::h5py_test
