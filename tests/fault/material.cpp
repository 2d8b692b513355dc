// SPDX-License-Identifier: Apache-2.0
#include "fault/material.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> settings(const std::string& files) {
  auto all = save_every_step(Material::num_steps);
  all.push_back("checkpoint.files=" + files);
  return all;
}

void copy_tree(const fs::path& from, const fs::path& to) {
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
}

}  // namespace

Material::Material(const std::string& name, int ranks, const std::string& files)
    : ranks_(ranks), job_("fault." + name, settings(files)), pristine_(job_.folder() / "pristine") {
  const Job whole("fault." + name + ".whole", settings(files));
  EXPECT_EQ(run(whole, ranks).exit_code, exits::done);
  expected_tensors_ = tensors_of(whole, num_steps);

  const Outcome outcome =
      run(job_, ranks, {}, {"train.stop_after_steps=" + std::to_string(newest)});
  EXPECT_EQ(outcome.exit_code, exits::stopped_saved) << outcome.text();
  fs::create_directory(pristine_);
  copy_tree(root(), pristine_ / "output");
  fs::copy_file(job_.data(), pristine_ / "data.json");
  for (const auto& entry : fs::directory_iterator(folder()))
    files_.push_back(entry.path().filename());
  std::ranges::sort(files_);
}

void Material::restore() const {
  fs::remove_all(root());
  copy_tree(pristine_ / "output", root());
  fs::copy_file(pristine_ / "data.json", job_.data(), fs::copy_options::overwrite_existing);
}

Outcome Material::expect_resumes_from(std::int64_t step) const {
  Outcome outcome = run(job_, ranks_);
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  EXPECT_EQ(resumed_from(outcome.out).value_or(0), step) << outcome.text();
  EXPECT_TRUE(tensors_of(job_, num_steps) == expected_tensors_);
  return outcome;
}

Outcome Material::expect_refused(int exit_code, const std::string& text,
                                 const std::vector<std::string>& more) const {
  Outcome outcome = run(job_, ranks_, {}, more);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.err;
  EXPECT_GE(
      count(outcome.err.substr(std::min(outcome.err.find("error: "), outcome.err.size())), text), 1)
      << text << "\n"
      << outcome.err;
  return outcome;
}

}  // namespace finetune::tests
