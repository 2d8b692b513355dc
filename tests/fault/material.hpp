#pragma once
// SPDX-License-Identifier: Apache-2.0
// A stopped run with three checkpoints, to be damaged and put right again and again.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fault/harness.hpp"

namespace finetune::tests {

class Material {
 public:
  static constexpr std::int64_t newest = 4;     ///< checkpoints are of steps 2, 3 and 4
  static constexpr std::int64_t num_steps = 6;  ///< of the whole run

  /// Runs a job on `ranks` ranks to step 4, and another one to its end for comparison.
  Material(const std::string& name, int ranks, const std::string& files);

  const Job& job() const { return job_; }
  std::filesystem::path root() const { return job_.output(); }
  std::filesystem::path folder(std::int64_t step = newest) const { return step_folder(job_, step); }
  /// Names of the files of a checkpoint.
  const std::vector<std::string>& files() const { return files_; }

  /// Everything in the job's folder as it was after step 4.
  void restore() const;

  /// Starts it again and expects that it goes on from `step` and ends with the bits of the other.
  /// Returns what it printed.
  Outcome expect_resumes_from(std::int64_t step) const;
  /// Starts it again and expects `exit_code` and one error that holds `text`.
  Outcome expect_refused(int exit_code, const std::string& text,
                         const std::vector<std::string>& more = {}) const;

 private:
  int ranks_;
  Job job_;
  std::filesystem::path pristine_;
  std::vector<std::string> files_;
  std::string expected_tensors_;
};

}  // namespace finetune::tests
