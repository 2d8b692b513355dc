// SPDX-License-Identifier: Apache-2.0
// late_rank HOW TIMEOUT_S [RANK ...]: all ranks meet once, then the ranks named do not come to the
// next collective, in the way named; after "still" they come once the machine has stood still. HOW
// may begin with "part:": then the first rank of the job does nothing, and the others are a world
// of their own, which counts them. For watchdog_test.cpp.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/environment.hpp"
#include "comm/watch/watchdog.hpp"
#include "core/awake_clock.hpp"

namespace {

using finetune::comm::Reduce;

constexpr double set_up_s = 200;
constexpr std::chrono::milliseconds turn{10};

/// A file with this process's number, named after its rank, where the program was started: once it
/// has waited for so long that its watchdog knows, of a timeout of 3 s.
void say_where(const finetune::comm::Environment& env, bool waits) {
  const auto has_waited = [&] {
    const finetune::comm::Doing doing = env.activity().look(finetune::comm::Track::main);
    return doing.is_inside && doing.collective == "all_reduce" && doing.seconds > 0.7;
  };
  while (waits && !has_waited())
    std::this_thread::sleep_for(turn);
  const std::string name = "rank." + std::to_string(env.world().rank());
  std::ofstream(name + ".new") << ::getpid();
  std::filesystem::rename(name + ".new", name);
}

/// Returns half a second after this process was stopped for a second or more, by its own clock.
void wait_for_standstill() {
  finetune::core::AwakeClock clock(1);
  while (!clock.look())
    std::this_thread::sleep_for(turn);
  for (int i = 0; i < 50; ++i)
    std::this_thread::sleep_for(turn);
}

void be_late(const std::string& how) {
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "die") ::raise(SIGKILL);
  if (how == "sleep") ::pause();
  if (how == "still") wait_for_standstill();
  if (how == "loop") {
    // Reads memory that another thread might write, so that it is no undefined endless loop.
    const volatile bool go_on = true;
    while (go_on) {
    }
  }
}

int meet(const finetune::comm::Environment& env, const std::string& how, int argc, char** argv) {
  std::vector<int> late;
  for (int i = 3; i < argc; ++i)
    late.push_back(std::atoi(argv[i]));
  const bool is_late = std::find(late.begin(), late.end(), env.world().rank()) != late.end();
  try {
    // Until all are there a busy machine may keep any of them waiting.
    std::optional<finetune::comm::Watchdog> watchdog(std::in_place, env, set_up_s);
    env.world().barrier();
    env.activity().set_step(5);
    const auto fsdp = env.world().split(0, env.world().rank(), "fsdp");
    watchdog.emplace(env, std::atof(argv[2]));
    std::jthread teller;
    if (how == "still") teller = std::jthread([&] { say_where(env, !is_late); });
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

}  // namespace

int main(int argc, char** argv) {
  finetune::comm::Environment env(argc, argv);
  const std::string how = argv[1];
  const std::string of_part = "part:";
  if (!how.starts_with(of_part)) return meet(env, how, argc, argv);
  const int is_in = env.world().is_root() ? 0 : 1;
  const auto part = env.world().split(is_in, env.world().rank(), "part");
  if (is_in == 0) return 0;
  return meet(finetune::comm::Environment(part), how.substr(of_part.size()), argc, argv);
}
