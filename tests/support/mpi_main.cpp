// SPDX-License-Identifier: Apache-2.0
// main() of tests that run on several ranks: failures of every rank are printed by the first one,
// and the exit status is the worst of all.

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "comm/environment.hpp"
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

/// Collects this rank's failures and hands them to the first rank at the end of each test.
/// Collective: every rank runs the same tests in the same order.
class RankListener : public testing::EmptyTestEventListener {
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
    if (!finetune::tests::world().is_root()) return;
    for (const std::string& text : texts) {
      if (!text.empty())
        std::printf("%s.%s on another rank\n%s", info.test_suite_name(), info.name(), text.c_str());
    }
  }

  std::string failures_;
};

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
  finetune::comm::Environment env(argc, argv);
  environment = &env;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (!env.world().is_root()) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankListener);
  const int status = RUN_ALL_TESTS();
  return static_cast<int>(
      env.world().all_reduce(std::int64_t{status}, finetune::comm::Reduce::max));
}
