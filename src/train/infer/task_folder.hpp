#pragma once
// SPDX-License-Identifier: Apache-2.0
// The folder that an evaluation's results go to.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "tasks/progress.hpp"
#include "tasks/results.hpp"

namespace finetune::train {

/// results.json, samples.jsonl, and while it lasts progress.jsonl. The root alone writes. All
/// functions but `folder` are collective on the world; they throw AgreedError of ErrorKind::create
/// or io where writing is vital.
class TaskFolder {
 public:
  static constexpr const char* progress_name = "progress.jsonl";
  static constexpr const char* results_name = "results.json";
  static constexpr const char* samples_name = "samples.jsonl";
  /// Whose results they are.
  static constexpr const char* fingerprint_name = ".evaluation";

  /// Whether what cannot be written ends it, or is only warned of.
  enum class Writing { vital, optional };
  TaskFolder(const comm::Communicator& world, std::filesystem::path folder,
             Writing writing = Writing::vital);

  /// What is known from an evaluation of this fingerprint that was stopped; lines follow. Lives no
  /// longer than the folder. Throws, where writing is vital: ErrorKind::create if results are there
  /// that are of another one, or of somebody else.
  tasks::Progress progress(const std::string& fingerprint);

  enum class KeepProgress { no, yes };
  /// Writes the results, `table` among them, and all answers. Kept progress tells later ones what
  /// was found out without asking again.
  void finish(const std::vector<tasks::Outcome>& outcomes, const std::string& table,
              KeepProgress keeps = KeepProgress::no);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path progress_file() const { return folder_ / progress_name; }
  void write(const std::string& line);
  void require_own_results() const;
  /// Calls `f` on all ranks; what fails is dealt with as `writing_` says.
  template <typename F>
  void attempt(const F& f);

  comm::Communicator world_;
  std::filesystem::path folder_;
  Writing writing_;
  std::ofstream file_;
  std::string fingerprint_;
  bool is_lost_ = false;  ///< a line could not be written
};

/// What an evaluation of this fingerprint found out in `folder`, which it has left; nothing is
/// written. Collective on `world`.
tasks::Progress known_progress(const comm::Communicator& world, const std::filesystem::path& folder,
                               const std::string& fingerprint);

}  // namespace finetune::train
