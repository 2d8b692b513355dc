// SPDX-License-Identifier: Apache-2.0
#include "support/residence.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "core/json.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"

extern char** environ;

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

constexpr int most_ranks = 4;
constexpr std::array handed_on = {"OMP_NUM_THREADS", "FINETUNE_FAULT"};

using Variables = std::map<std::string, std::string, std::less<>>;

/// All of this process but those that each run is told.
Variables variables() {
  Variables all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text = *each;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::find(handed_on.begin(), handed_on.end(), name) == handed_on.end())
      all.emplace(name, text.substr(std::min(name.size() + 1, text.size())));
  }
  return all;
}

/// Before the first test.
const Variables at_first = variables();

/// One job of finetune_resident. Each of its ranks reads what it is to run from a pipe of its own,
/// and ends when that is closed.
class Residence {
 public:
  explicit Residence(int ranks)
      : folder_(empty_folder("residence/" + std::to_string(::getpid()))), ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const fs::path pipe = folder_ / ("rank-" + std::to_string(rank));
      if (::mkfifo(pipe.c_str(), 0600) != 0)
        throw std::runtime_error(pipe.string() + " cannot be made");
      // For reading, too: so it opens at once, and writing does not fail when the reader has gone.
      pipes_.push_back(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
    }
    Words words = ranks > 1 ? mpirun(ranks) : Words();
    words.insert(words.end(), {build_folder() / "tests/finetune_resident", folder_.string()});
    job_ = std::make_unique<Process>(words, folder_, std::chrono::hours(24));
  }

  ~Residence() {
    end();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  int ranks() const { return ranks_; }
  bool is_there() const { return job_ != nullptr; }

  Outcome run(int ranks, const std::vector<std::string>& arguments, const fs::path& folder) {
    core::Json variables = core::Json::object();
    for (const char* name : handed_on)
      if (const char* value = std::getenv(name)) variables[name] = value;
    const core::Json wish = {{"ranks", ranks},
                             {"arguments", arguments},
                             {"folder", folder.string()},
                             {"variables", variables}};
    const std::string line = wish.dump() + '\n';
    for (const char* name : {"stdout", "stderr"})
      std::ofstream(folder_ / name, std::ios::trunc);
    for (int rank = 0; rank < ranks; ++rank)
      if (::write(pipes_[static_cast<std::size_t>(rank)], line.data(), line.size()) !=
          static_cast<ssize_t>(line.size()))
        throw std::runtime_error("what is to run cannot be handed on");
    return outcome();
  }

 private:
  using Words = std::vector<std::string>;

  /// The first rank prints a line with the exit code when all have done it.
  Outcome outcome() {
    const auto limit = std::chrono::steady_clock::now() + run_limit;
    Outcome outcome;
    while (job_->out().size() == answered_ || job_->out().back() != '\n') {
      outcome.timed_out = std::chrono::steady_clock::now() > limit;
      if (!outcome.timed_out && job_->read_for(50)) continue;
      if (outcome.timed_out) job_->kill();
      const Outcome last = job_->wait(run_limit);
      job_.reset();
      outcome.exit_code = last.exit_code;
      outcome.out = file_text(folder_ / "stdout");
      outcome.err = file_text(folder_ / "stderr") + last.err;
      return outcome;
    }
    outcome.exit_code = std::atoi(job_->out().c_str() + answered_);
    answered_ = job_->out().size();
    outcome.out = file_text(folder_ / "stdout");
    outcome.err = file_text(folder_ / "stderr");
    return outcome;
  }

  void end() {
    for (const int pipe : pipes_)
      ::close(pipe);
    pipes_.clear();
    if (job_) job_->wait(run_limit);
    job_.reset();
  }

  fs::path folder_;
  int ranks_;
  std::vector<int> pipes_;
  std::unique_ptr<Process> job_;
  std::size_t answered_ = 0;  ///< bytes of its output
};

}  // namespace

bool may_stay(int ranks, const std::vector<std::string>& arguments) {
  const char* fault = std::getenv("FINETUNE_FAULT");
  const std::string_view planted = fault == nullptr ? "" : fault;
  const auto is_own = [](const std::string& word) {
    return word == "watch" || word == "--help" || word == "-h" || word == "help" ||
           word.starts_with("train.max_seconds");
  };
  return ranks <= most_ranks && std::getenv("FINETUNE_TESTS_ALONE") == nullptr &&
         variables() == at_first && planted.find(":kill") == planted.npos &&
         planted.find(":stop") == planted.npos &&
         std::none_of(arguments.begin(), arguments.end(), is_own);
}

Outcome run_finetune(int ranks, const std::vector<std::string>& arguments, const fs::path& folder) {
  if (!may_stay(ranks, arguments)) return run_program(finetune_on(ranks, arguments), folder);
  static std::unique_ptr<Residence> residence;
  if (residence && (!residence->is_there() || residence->ranks() < ranks)) residence.reset();
  // Most programs of tests have runs of one rank alone, or of up to four.
  if (!residence) residence = std::make_unique<Residence>(ranks == 1 ? 1 : most_ranks);
  return residence->run(ranks, arguments, folder);
}

}  // namespace finetune::tests
