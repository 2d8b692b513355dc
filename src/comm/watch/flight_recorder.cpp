// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/flight_recorder.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "core/awake_clock.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/log.hpp"

namespace finetune::comm {
namespace {

// A handler can reach nothing but these: an atomic and sem_post, which take no lock.
static_assert(std::atomic<bool>::is_always_lock_free);
std::atomic<bool> signal_asks = false;
sem_t wake;
const bool wake_is_there = ::sem_init(&wake, 0, 0) == 0;

void ask_by_signal(int) {
  const int before = errno;
  signal_asks = true;
  ::sem_post(&wake);
  errno = before;
}

std::string json_text(std::string_view text) {
  return core::Json(std::string(text)).dump(-1, ' ', false, core::Json::error_handler_t::replace);
}

const char* name_of(Track track) {
  return track == Track::main ? "main" : "stream";
}

std::string to_json(const Doing& doing) {
  return fmt::format(
      R"({{"step": {}, "sequence": {}, "inside": {}, "collective": {}, "axis": {}, "seconds": {:.6f}, "work": {}}})",
      doing.step, doing.sequence, doing.is_inside, json_text(doing.collective),
      json_text(doing.axis), doing.seconds, json_text(doing.work));
}

/// `now_ns` is when it is written.
std::string to_json(const Collective& c, std::int64_t now_ns) {
  const auto before_s = [&](std::int64_t ns) { return 1e-9 * static_cast<double>(now_ns - ns); };
  return fmt::format(
      R"({{"track": "{}", "axis": {}, "first_rank": {}, "ranks": {}, "number": {}, "collective": "{}", "subject": {}, "bytes": {}, "step": {}, "begin_s": {:.6f}, "end_s": {}}})",
      name_of(c.track), json_text(c.axis.view()), c.details.first_rank, c.details.num_ranks,
      c.number, c.name, json_text(c.details.subject.view()), c.details.bytes, c.step,
      before_s(c.begin_ns), c.end_ns == 0 ? "null" : fmt::format("{:.6f}", before_s(c.end_ns)));
}

double unix_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

FlightRecorder::FlightRecorder(const Activity& activity, int rank, int num_ranks, std::string host)
    : activity_(activity), rank_(rank), num_ranks_(num_ranks), host_(std::move(host)) {}

FlightRecorder::~FlightRecorder() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  ::sem_post(&wake);
  if (thread_.joinable()) thread_.join();
}

void FlightRecorder::catch_signal() {
  struct sigaction action = {};
  action.sa_handler = ask_by_signal;
  action.sa_flags = SA_RESTART;
  if (wake_is_there) ::sigaction(SIGUSR2, &action, nullptr);
}

void FlightRecorder::write_to(std::filesystem::path folder) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

std::filesystem::path FlightRecorder::folder() const {
  const std::lock_guard lock(mutex_);
  return folder_;
}

bool FlightRecorder::write(const std::string& reason, double limit_s, std::vector<Heard> heard) {
  std::unique_lock lock(mutex_);
  if (folder_.empty()) return false;
  wishes_.push_back({reason, std::move(heard)});
  const std::int64_t own = ++num_asked_;
  ::sem_post(&wake);
  constexpr double turn_s = 0.1;
  core::AwakeClock waiting(2 * turn_s);
  while (num_done_ < own && waiting.seconds() < limit_s) {
    written_.wait_for(lock, std::chrono::duration<double>(turn_s));
    waiting.look();
  }
  return num_done_ >= own;
}

void FlightRecorder::set_call(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  call_ = std::move(call);
}

void FlightRecorder::write_everywhere(const std::string& reason, double limit_s) {
  write(reason, limit_s);
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    call = call_;
  }
  if (call) call();
}

void FlightRecorder::run() {
  // Those that ask a run to stop are the main thread's.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    while (::sem_wait(&wake) != 0 && errno == EINTR) {
    }
    if (signal_asks.exchange(false)) write_file({asked_by_signal, {}});
    std::unique_lock lock(mutex_);
    if (is_closing_) return;
    const std::vector<Wish> wishes = std::exchange(wishes_, {});
    lock.unlock();
    for (const Wish& wish : wishes)
      write_file(wish);
    lock.lock();
    num_done_ += std::ssize(wishes);
    written_.notify_all();
  }
}

void FlightRecorder::write_file(const Wish& wish) const {
  const std::int64_t now = now_ns();
  const auto newest = activity_.counts();
  const auto last = activity_.last();
  std::string text = fmt::format(
      R"({{"rank": {}, "num_ranks": {}, "host": {}, "reason": {}, "unix_s": {:.3f}, "main": {}, "stream": {}, "counts": [)",
      rank_, num_ranks_, json_text(host_), json_text(wish.reason), unix_s(),
      to_json(activity_.look(Track::main)), to_json(activity_.look(Track::stream)));
  const char* comma = "";
  for (const Collective& each : newest) {
    text += comma + to_json(each, now);
    comma = ", ";
  }
  text += "]}\n";
  for (const Heard& each : wish.heard)
    text += fmt::format(
        R"({{"heard": {}, "host": {}, "silent_s": {:.3f}, "main": {}, "stream": {}}})"
        "\n",
        each.rank, json_text(each.host), each.silent_s, to_json(each.main), to_json(each.stream));
  for (const Collective& each : last)
    text += to_json(each, now) + "\n";
  try {
    const std::filesystem::path folder = this->folder();
    std::filesystem::create_directories(folder);
    core::write_text_atomically(folder / fmt::format("rank-{:05}.jsonl", rank_), text);
  } catch (const std::exception& error) {
    log::warn(fmt::format("what rank {} did last cannot be written: {}", rank_, error.what()));
  }
}

}  // namespace finetune::comm
