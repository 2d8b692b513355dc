// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/detail/handle.hpp"
#include "comm/detail/launcher.hpp"
#include "comm/mpi/detail/mpi.hpp"
#include "comm/watch/detail/beat.hpp"
#include "comm/watch/detail/outbox.hpp"
#include "comm/watch/hang.hpp"
#include "core/awake_clock.hpp"
#include "core/fault.hpp"
#include "core/log.hpp"

namespace finetune::comm {
namespace {

constexpr int beat_tag = 1;
constexpr int call_tag = 2;    ///< write your flight record
constexpr int answer_tag = 3;  ///< it is written
constexpr double call_interval_s = 0.2;
constexpr double longest_record_s = 5;
constexpr double longest_end_s = 90;  ///< of a job: its records, and abort_job
/// Beats after which a rank that judges has judged what was known before them.
constexpr std::int64_t beats_to_speak = 3;

}  // namespace

// The constructor, close() and abandon() run on the caller's thread, the first before and the
// others after the watching thread; a recorder's call() on that of whoever fails, beside it. MPI's
// errors are left alone in between: a peer that cannot be reached is silent, which is what the
// judgement is about.
class Watchdog::Guard {
 public:
  /// `world` is the environment's.
  Guard(const Environment& environment, MPI_Comm world, double timeout_s, double interval_s)
      : activity_(environment.activity()),
        flight_(environment.flight()),
        rank_(environment.world().rank()),
        timeout_s_(timeout_s),
        interval_s_(interval_s > 0 ? interval_s : std::clamp(timeout_s / 5, 0.05, 5.0)),
        clock_(2 * interval_s_),
        answers_(timeout_s / 2) {
    const Topology& topology = environment.topology();
    for (const int node : topology.node_of_rank)
      hosts_.push_back(topology.node_names[static_cast<std::size_t>(node)]);
    ranks_.resize(hosts_.size());
    heard_at_s_.resize(hosts_.size());
    check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    for (const int monitor : {0, last_rank()})
      if (monitor != rank_) outboxes_.push_back({.rank = monitor});
    if (is_monitor()) receive_next();
    flight_.set_call([this] {
      call();
      if (!flight_.folder().empty()) wait_for_answers({});
    });
    thread_ = std::thread([this] { watch(); });
  }

  /// Collective. The thread goes on until every rank has come here.
  void close() {
    flight_.set_call(nullptr);
    {
      const Activity::Scope scope(&activity_, Track::main, "finish", "world");
      ask(Wish::finish);
      thread_.join();
    }
    release_requests();
    MPI_Comm_free(&comm_);
  }

  /// Not collective. False if memory must stay, because a message is still leaving from it.
  bool abandon() {
    flight_.set_call(nullptr);
    ask(Wish::abandon);
    thread_.join();
    const bool all_left = std::all_of(outboxes_.begin(), outboxes_.end(),
                                      [](Outbox& outbox) { return outbox.is_free(); });
    release_requests();
    return all_left;
  }

 private:
  enum class Wish { go_on, finish, abandon };

  int last_rank() const { return static_cast<int>(hosts_.size()) - 1; }
  bool is_monitor() const { return rank_ == 0 || rank_ == last_rank(); }
  RankState& own() { return ranks_[static_cast<std::size_t>(rank_)]; }

  void ask(Wish wish) {
    const std::lock_guard lock(mutex_);
    wish_ = wish;
    wake_.notify_one();
  }

  /// Sleeps until the next beat is due, or until something else is wished than `now`.
  Wish rest(Wish now) {
    // Nobody sees a run end 10 ms later, and the thread need not spin while others finish.
    const double seconds = now == Wish::finish ? std::min(interval_s_, 0.01) : interval_s_;
    const core::Stopwatch resting;
    std::unique_lock lock(mutex_);
    for (double left = seconds; wish_ == now && left > 0; left = seconds - resting.seconds()) {
      wake_.wait_for(lock, std::chrono::duration<double>(std::min(left, call_interval_s)),
                     [&] { return wish_ != now; });
      lock.unlock();
      answer_call();
      lock.lock();
    }
    return wish_;
  }

  /// Tells every other rank that this one ends the job: it writes its flight record, and judges no
  /// more.
  void call() const {
    for (int rank = 0; rank <= last_rank(); ++rank)
      if (rank != rank_) send_nothing(rank, call_tag);
  }

  /// Waits a little for the flight records of those that are expected to write one; empty: of all
  /// others.
  void wait_for_answers(const std::vector<bool>& expected) const {
    int num_expected = 0;
    for (int rank = 0; rank <= last_rank(); ++rank)
      if (rank != rank_ && (expected.empty() || expected[static_cast<std::size_t>(rank)]))
        ++num_expected;
    core::AwakeClock waiting(call_interval_s);
    for (; num_expected > 0 && waiting.seconds() < longest_record_s; waiting.look()) {
      if (take_nothing(answer_tag) >= 0)
        --num_expected;
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void answer_call() {
    // Who was stopped for so long was called silent: what the others heard of it last explains
    // the hang, and what it would write now, after a launcher woke it to end it, hides that. Where
    // all were stopped, the next verdict comes after a whole timeout.
    if (answers_.look()) no_record_until_s_ = answers_.seconds() + timeout_s_ / 2;
    const int caller = take_nothing(call_tag);
    if (caller < 0) return;
    // Who calls ends the job; should it stop in the midst of that, others judge again.
    quiet_until_s_ = clock_.seconds() + longest_end_s + timeout_s_;
    if (answers_.seconds() >= no_record_until_s_)
      flight_.write(fmt::format("{}{}, which ends the job", asked_by_rank, caller),
                    longest_record_s);
    send_nothing(caller, answer_tag);
  }

  void send_nothing(int to, int tag) const {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, comm_, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }

  /// The rank that sent an empty message, -1 if there is none.
  int take_nothing(int tag) const {
    int is_there = 0;
    MPI_Status status{};
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &is_there, &status) != MPI_SUCCESS || is_there == 0)
      return -1;
    MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, tag, comm_, MPI_STATUS_IGNORE);
    return status.MPI_SOURCE;
  }

  void watch() {
    for (Wish wish = Wish::go_on; wish != Wish::abandon; wish = rest(wish)) {
      // Who was stopped knows old news only; the others may be about to say so.
      if (clock_.look()) {
        quiet_until_s_ = std::max(quiet_until_s_, clock_.seconds() + timeout_s_);
        agreed_since_s_.reset();
      }
      look_at_myself(wish == Wish::finish);
      send();
      if (is_monitor()) receive();
      if (wish == Wish::finish && is_finished()) return;
      decide();
    }
  }

  void look_at_myself(bool is_last) {
    for (std::size_t i = 0; i < own().tracks.size(); ++i) {
      const Doing before = own().tracks[i];
      Doing now = activity_.look(static_cast<Track>(i));
      if (now.sequence != before.sequence || now.is_inside != before.is_inside)
        since_s_[i] = clock_.seconds() - std::min(now.seconds, interval_s_);
      now.seconds = std::min(now.seconds, clock_.seconds() - since_s_[i]);
      own().tracks[i] = now;
    }
    own().is_finished = is_last;
    heard_at_s_[static_cast<std::size_t>(rank_)] = clock_.seconds();
  }

  void send() {
    // While finishing the thread looks often, but one last beat is enough.
    for (Outbox& outbox : outboxes_) {
      if (outbox.has_sent_last || !outbox.is_free()) continue;
      outbox.beat = to_beat(own());
      outbox.has_sent_last = own().is_finished;
      MPI_Isend(&outbox.beat, sizeof(Beat), MPI_BYTE, outbox.rank, beat_tag, comm_,
                &outbox.request);
    }
  }

  void receive_next() {
    MPI_Irecv(&received_, sizeof(Beat), MPI_BYTE, MPI_ANY_SOURCE, beat_tag, comm_, &receipt_);
  }

  /// Takes everything that has arrived, so that a rank which was stopped judges no old news.
  void receive() {
    while (receipt_ != MPI_REQUEST_NULL) {
      int done = 0;
      MPI_Status status{};
      if (MPI_Test(&receipt_, &done, &status) != MPI_SUCCESS || done == 0) return;
      const auto from = static_cast<std::size_t>(status.MPI_SOURCE);
      ranks_[from] = to_state(received_);
      heard_at_s_[from] = clock_.seconds();
      if (from == 0) ++num_beats_of_first_;
      if (!has_everyone_finished()) receive_next();
    }
  }

  bool has_everyone_finished() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (static_cast<int>(rank) != rank_ && !ranks_[rank].is_finished) return false;
    return true;
  }

  bool is_finished() {
    return std::all_of(outboxes_.begin(), outboxes_.end(),
                       [](Outbox& outbox) { return outbox.has_sent_last && outbox.is_free(); }) &&
           (!is_monitor() || has_everyone_finished());
  }

  void decide() {
    if (clock_.seconds() < quiet_until_s_) return;
    own_wait_s_ = 0;
    for (const Doing& doing : own().tracks)
      if (doing.is_inside) own_wait_s_ = std::max(own_wait_s_, doing.seconds);
    if (is_monitor()) {
      decide_for_all();
    } else if (own_wait_s_ > 3 * timeout_s_) {
      // The two that judge are both silent.
      end(alone());
    }
  }

  void decide_for_all() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank].silent_s = clock_.seconds() - heard_at_s_[rank];
    // A rank that finishes still waits for the others, unlike what it tells them.
    const bool is_finishing = std::exchange(own().is_finished, false);
    const auto verdict = judge(ranks_, hosts_, timeout_s_);
    own().is_finished = is_finishing;
    if (!verdict) {
      agreed_since_s_.reset();
      return;
    }
    if (!agreed_since_s_) {
      agreed_since_s_ = clock_.seconds();
      num_beats_of_first_ = 0;
    }
    if (rank_ != 0 && !is_silent(ranks_[0], timeout_s_) && !has_first_had_its_turn()) return;
    end(*verdict);
  }

  /// The last rank gives the first one time to speak, if it is there: by the clock, and by what it
  /// hears of it, as a machine with other work may let it run less often.
  bool has_first_had_its_turn() const {
    return clock_.seconds() - *agreed_since_s_ >= timeout_s_ / 2 &&
           num_beats_of_first_ >= beats_to_speak;
  }

  core::Message alone() const {
    const auto& tracks = ranks_[static_cast<std::size_t>(rank_)].tracks;
    const Doing& doing = tracks[0].is_inside ? tracks[0] : tracks[1];
    return {fmt::format("step {}", doing.step),
            fmt::format("rank {} on {} waits in {} on {}, and rank 0 on {} and rank {} on {}, "
                        "which should say for whom, do nothing",
                        rank_, hosts_[static_cast<std::size_t>(rank_)], doing.collective,
                        doing.axis, hosts_.front(), last_rank(), hosts_.back()),
            fmt::format("it has been inside it for {:.0f} s", doing.seconds),
            "Look at the nodes of these two ranks."};
  }

  void end(core::Message message) {
    answer_call();
    if (clock_.seconds() < quiet_until_s_) return;
    // Before anything that may take long: whoever else judges is about to say the same.
    call();
    core::fault::hit("watchdog.end");
    const std::filesystem::path folder = flight_.folder();
    if (!folder.empty())
      message.remedy += fmt::format(" What all ranks did last: finetune trace hang {}",
                                    folder.parent_path().string());
    log::error(core::to_string(message));
    std::vector<Heard> heard;
    std::vector<bool> expected(ranks_.size(), true);
    for (std::size_t rank = 0; is_monitor() && rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      expected[rank] = !state.is_finished && !is_silent(state, timeout_s_);
      if (is_silent(state, timeout_s_))
        heard.push_back({static_cast<int>(rank), hosts_[rank], state.silent_s, state.tracks[0],
                         state.tracks[1]});
    }
    if (flight_.write(asked_by_watchdog, longest_record_s, std::move(heard)))
      wait_for_answers(expected);
    abort_job(static_cast<int>(core::ErrorKind::io));
  }

  void release_requests() {
    if (receipt_ != MPI_REQUEST_NULL) {
      MPI_Cancel(&receipt_);
      MPI_Wait(&receipt_, MPI_STATUS_IGNORE);
    }
    for (Outbox& outbox : outboxes_)
      if (outbox.request != MPI_REQUEST_NULL) MPI_Request_free(&outbox.request);
  }

  Activity& activity_;
  FlightRecorder& flight_;
  int rank_;
  double timeout_s_;
  double interval_s_;
  std::vector<std::string> hosts_;  ///< by rank
  MPI_Comm comm_ = MPI_COMM_NULL;

  std::mutex mutex_;
  std::condition_variable wake_;
  Wish wish_ = Wish::go_on;

  core::AwakeClock clock_;
  core::AwakeClock answers_;         ///< looks for calls, more often than beats are due
  double no_record_until_s_ = 0;     ///< on `answers_`
  double quiet_until_s_ = 0;         ///< on the clock: no judgement before
  std::array<double, 2> since_s_{};  ///< on the clock, when each track began what it does
  double own_wait_s_ = 0;
  std::vector<Outbox> outboxes_;
  std::vector<RankState> ranks_;  ///< of monitors; of others only their own entry
  std::vector<double> heard_at_s_;
  Beat received_;
  MPI_Request receipt_ = MPI_REQUEST_NULL;
  std::optional<double> agreed_since_s_;  ///< on the clock, since when somebody is to blame
  std::int64_t num_beats_of_first_ = 0;   ///< that came since then

  std::thread thread_;
};

Watchdog::Watchdog(const Environment& environment, double timeout_s, double interval_s) {
  if (timeout_s <= 0 || environment.world().size() == 1) return;
  int provided = 0;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    log::warn(
        "train.hang_timeout_s is set, but this MPI lets one thread call it only: a job that "
        "hangs will not be ended");
    return;
  }
  guard_ =
      std::make_unique<Guard>(environment, environment.world_handle()->comm, timeout_s, interval_s);
}

Watchdog::~Watchdog() {
  if (!guard_) return;
  if (std::uncaught_exceptions() == 0) {
    guard_->close();
  } else if (!guard_->abandon()) {
    // Kept for the rest of the process.
    static_cast<void>(guard_.release());
  }
}

}  // namespace finetune::comm
