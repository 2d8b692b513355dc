#pragma once
// SPDX-License-Identifier: Apache-2.0
// A GPU and its NCCL for the tests of src/comm: streams are threads, events are moments, device
// memory is the host's, collectives go over MPI. What can go wrong is set here, and what was done
// wrong is read here.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace finetune::fake {

/// A mistake that the code under test could make, planted where it calls the fake: to see that a
/// test finds it.
enum class Defect {
  none,
  communication_waits_for_nothing,  ///< the stream of collectives is not told to wait
  computation_waits_for_nothing,    ///< any other is not
  done_at_once,                     ///< an event counts as past as soon as it is recorded
  under_way_at_once,                ///< nobody asks whether a collective is on its stream
  group_is_lost,                    ///< collectives between GroupStart and GroupEnd never start
};

/// How this rank's device and NCCL behave.
struct Settings {
  int num_devices = 8;
  /// So often NCCL is asked before what it was told to do is under way.
  int num_in_progress = 2;
  /// Before each piece of a stream's work, at random from `seed`.
  int longest_delay_us = 0;
  std::uint64_t seed = 1;
  /// Whoever puts more on a stream waits until there is room, as on a real device.
  std::size_t most_in_queue = 1000;
  /// The clock of timed events moves by `advance_clock` alone.
  bool clock_stands = false;

  bool gives_no_id = false;
  bool cannot_connect = false;
  /// The collective with this number, counted from these settings on, never ends: NCCL says that
  /// another rank was lost, or says nothing.
  std::int64_t loses_a_rank_at = -1;
  std::int64_t hangs_at = -1;
  /// An abort returns only when all communicators of this process are being aborted.
  bool aborts_together = false;
  Defect defect = Defect::none;
};

/// Before the first communicator; collective over these ranks of the job, in their order, or over
/// all of them, as is `disconnect`, after the last.
void connect(const std::vector<int>& ranks = {});
void disconnect();

/// From now on. Collectives count from 0 again.
void set(const Settings& settings);
Settings settings();
/// Collectives that this rank has put on streams since then.
std::int64_t num_collectives();

/// What the code under test did that neither CUDA nor NCCL allows, since the last call: memory that
/// is not there, communicators that were aborted, collectives that differ over the ranks ...
std::vector<std::string> take_violations();
void report_violation(std::string text);

/// Waits until nothing runs on any stream, also on those that are destroyed.
void wait_until_idle();
/// Not yet destroyed or aborted.
int num_communicators();
void wait_until_no_communicators();
int num_events();
/// Registered with communicators now; and in all since `set`.
int num_registered();
int num_ever_registered();
/// Times that NCCL was told to begin something, alone or as a group, since `set`.
std::int64_t num_launches();

/// Puts `work` on a stream as if it were a kernel.
void put(void* stream, std::function<void()> work);
/// Returns when the stream stands before an event that is not past (true), or has nothing to do.
bool is_held(void* stream);
void advance_clock(double seconds);

/// Holds streams up until it is opened, or ends.
class Gate {
 public:
  ~Gate() { open(); }
  /// The stream stands still where it comes to this.
  void hold(void* stream);
  void open();
  /// Returns when a stream stands before it.
  void wait_until_reached();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;
    bool is_reached = false;
  };
  /// Streams may come to it after its end.
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace finetune::fake
