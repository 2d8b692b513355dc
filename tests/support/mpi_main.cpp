// SPDX-License-Identifier: Apache-2.0
// main() of tests that run on several ranks. One launch runs the suite on each number of ranks that
// --ranks names, at once where the numbers have room side by side; ranks that are left over sleep.
// Failures of every rank are printed by the first of its group, and the exit status is the worst of
// all.

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/detail/launcher.hpp"
#include "comm/environment.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "support/ranks.hpp"

#ifdef FINETUNE_ADDRESS_SANITIZER
// Open MPI unloads its plugins before leaks are looked for: the frames of what they never free
// would have no names then, and the suppressions go by names. So they stay.
extern "C" int dlclose(void* /*library*/) noexcept {
  return 0;
}
#endif

namespace {

const finetune::comm::Environment* environment = nullptr;
std::atomic<const testing::TestInfo*> running = nullptr;

/// Collects this rank's failures and hands them to the first rank at the end of each test.
/// Collective: every rank runs the same tests in the same order.
class RankListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override { running = &info; }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || finetune::tests::world().is_root()) return;
    std::ostringstream text;
    text << "rank " << finetune::tests::world().rank() << ": "
         << (result.file_name() != nullptr ? result.file_name() : "?") << ":"
         << result.line_number() << "\n"
         << result.message() << "\n";
    failures_ += text.str();
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    const auto texts = finetune::tests::world().all_gather_text(failures_);
    failures_.clear();
    running = nullptr;
    if (!finetune::tests::world().is_root()) return;
    for (const std::string& text : texts) {
      if (!text.empty())
        std::printf("%s.%s on another rank\n%s", info.test_suite_name(), info.name(), text.c_str());
    }
  }

  std::string failures_;
};

/// The program's own arguments, after GoogleTest has taken its.
struct Arguments {
  std::string name = "tests";       ///< in the report
  std::vector<int> num_ranks;       ///< of each run of the suite; empty: one, on all ranks
  std::chrono::seconds limit{600};  ///< of each run

  static Arguments read(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
      const std::string_view word = argv[i];
      const std::string value(word.substr(std::min(word.find('=') + 1, word.size())));
      if (word.starts_with("--name=")) arguments.name = value;
      if (word.starts_with("--limit=")) arguments.limit = std::chrono::seconds(std::stol(value));
      if (!word.starts_with("--ranks=")) continue;
      std::istringstream numbers(value);
      for (std::string number; std::getline(numbers, number, ',');)
        arguments.num_ranks.push_back(std::stoi(number));
    }
    return arguments;
  }
};

/// Ends the job, with the name of the test that is running, unless it is destroyed in time.
class Deadline {
 public:
  Deadline(std::string name, std::chrono::seconds limit)
      : name_(std::move(name)), thread_([this, limit] { wait(limit); }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void wait(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    if (over_.wait_for(lock, limit, [this] { return is_over_; })) return;
    const testing::TestInfo* test = running;
    std::fprintf(stderr, "%s: not done after %lld s, in %s.%s\n", name_.c_str(),
                 static_cast<long long>(limit.count()),
                 test != nullptr ? test->test_suite_name() : "no test",
                 test != nullptr ? test->name() : "");
    finetune::comm::abort_job(static_cast<int>(finetune::core::ErrorKind::io));
  }

  std::string name_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

/// What this process prints to stdout while the object lives.
class Captured {
 public:
  Captured() : file_(std::tmpfile()), stdout_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    ::dup2(::fileno(file_), STDOUT_FILENO);
  }
  ~Captured() { std::fclose(file_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  /// Ends the capture.
  std::string take() {
    std::fflush(stdout);
    ::dup2(stdout_, STDOUT_FILENO);
    ::close(stdout_);
    std::string text(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

 private:
  std::FILE* file_;
  int stdout_;
};

/// Numbers of ranks that run at once, and so on: the largest first, each with those that fit beside
/// it.
std::vector<std::vector<int>> make_rounds(std::vector<int> numbers, int num_ranks) {
  std::ranges::sort(numbers, std::greater<>());
  std::vector<std::vector<int>> rounds;
  while (!numbers.empty()) {
    int left = num_ranks;
    auto& round = rounds.emplace_back();
    std::erase_if(numbers, [&](int number) {
      if (number > left) return false;
      left -= number;
      round.push_back(number);
      return true;
    });
    if (round.empty()) throw std::invalid_argument("--ranks names more ranks than there are");
  }
  return rounds;
}

/// Runs the suite on all ranks of `group`; the worst status of all of them. `printer` is the first
/// one's. Collective on `group`.
int run_suite(const finetune::comm::Communicator& group, const Arguments& arguments,
              testing::TestEventListener* printer) {
  const std::string name = arguments.name + " on " + std::to_string(group.size()) +
                           (group.size() == 1 ? " rank" : " ranks");
  const finetune::comm::Environment ranks(group);
  environment = &ranks;
  RankListener listener;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (group.is_root()) listeners.Append(printer);
  listeners.Append(&listener);
  const finetune::core::Stopwatch watch;
  std::optional<Deadline> deadline;
  if (group.is_root()) deadline.emplace(name, arguments.limit);
  const auto status = static_cast<int>(
      group.all_reduce(std::int64_t{RUN_ALL_TESTS()}, finetune::comm::Reduce::max));
  listeners.Release(&listener);
  listeners.Release(printer);
  if (group.is_root()) {
    const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
    std::printf("%s: %s, %d tests in %.1f s\n", name.c_str(), status == 0 ? "passed" : "FAILED",
                tests.test_to_run_count() - tests.skipped_test_count(), watch.seconds());
    std::fflush(stdout);
  }
  return status;
}

/// Runs the suite on groups of these numbers of ranks at once. The root prints what its own group
/// says, then what the others said. Collective on the job. Returns this rank's status.
int run_round(const finetune::comm::Environment& job, const std::vector<int>& numbers,
              const Arguments& arguments, testing::TestEventListener* printer) {
  const int rank = job.world().rank();
  int index = 0, begin = 0;
  for (const int number : numbers) {
    if (rank < begin + number) break;
    begin += number;
    ++index;
  }
  const auto group = job.world().split(index, rank, "tests");
  const bool takes_part = index < static_cast<int>(numbers.size());
  int status = 0;
  std::string text;
  if (takes_part && index == 0) status = run_suite(group, arguments, printer);
  if (takes_part && index > 0) {
    Captured captured;
    status = run_suite(group, arguments, printer);
    text = captured.take();
  }
  // Whoever takes no part, or is done, sleeps here.
  job.world().barrier();
  for (const std::string& theirs : job.world().gather_text(text))
    std::fputs(theirs.c_str(), stdout);
  std::fflush(stdout);
  return status;
}

}  // namespace

namespace finetune::tests {
const comm::Communicator& world() {
  return environment->world();
}
const comm::Environment& mpi() {
  return *environment;
}
}  // namespace finetune::tests

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Arguments arguments = Arguments::read(argc, argv);
  finetune::comm::Environment job(argc, argv);
  if (arguments.num_ranks.empty()) arguments.num_ranks = {job.world().size()};
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  const std::unique_ptr<testing::TestEventListener> printer(
      listeners.Release(listeners.default_result_printer()));
  int status = 0;
  for (const auto& numbers : make_rounds(arguments.num_ranks, job.world().size()))
    status = std::max(status, run_round(job, numbers, arguments, printer.get()));
  environment = &job;
  return static_cast<int>(
      job.world().all_reduce(std::int64_t{status}, finetune::comm::Reduce::max));
}
