// SPDX-License-Identifier: Apache-2.0
// late_rank HOW TIMEOUT_S [RANK ...]: all ranks meet once, then the ranks named do not come to the
// next collective, in the way named. For watchdog_test.cpp.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "comm/environment.hpp"
#include "comm/watch/watchdog.hpp"

namespace {

using finetune::comm::Reduce;

void be_late(const std::string& how) {
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "die") ::raise(SIGKILL);
  if (how == "sleep") ::pause();
  if (how == "loop") {
    // Reads memory that another thread might write, so that it is no undefined endless loop.
    const volatile bool go_on = true;
    while (go_on) {
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  finetune::comm::Environment env(argc, argv);
  const std::string how = argv[1];
  std::vector<int> late;
  for (int i = 3; i < argc; ++i)
    late.push_back(std::atoi(argv[i]));
  const bool is_late = std::find(late.begin(), late.end(), env.world().rank()) != late.end();
  try {
    const finetune::comm::Watchdog watchdog(env, std::atof(argv[2]));
    env.world().barrier();
    env.activity().set_step(5);
    const auto fsdp = env.world().split(0, env.world().rank(), "fsdp");
    if (is_late) be_late(how);
    fsdp.all_reduce(std::int64_t{1}, Reduce::sum);
    // Nobody waits while all are busy, however long.
    if (how == "busy") ::usleep(static_cast<useconds_t>(1.5e6 * std::atof(argv[2])));
    env.world().barrier();
  } catch (const std::exception& error) {
    return env.report(error);
  }
  return 0;
}
