// SPDX-License-Identifier: Apache-2.0
// NCCL, as much of it as src/comm calls: communicators and their life, calls that are under way
// only after they were asked for, groups of calls.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "fake_cuda/collectives.hpp"
#include "fake_cuda/runtime.hpp"

using namespace finetune::fake;
using finetune::core::DType;

/// What ncclComm_t points at. Kept until the program ends, to know who is used too late.
struct ncclComm {
  std::mutex mutex;
  std::condition_variable changed;
  Ranks ranks;
  int device = 0;
  bool blocks = true;
  ncclResult_t state = ncclInProgress;
  int num_in_progress = 0;  ///< so often it is still asked in vain
  bool is_connected = false;
  std::vector<std::pair<Collective, Queue*>> to_start;
  std::string error;
  bool is_putting = false;
  bool is_finalized = false;
  bool is_ended = false;
  std::atomic<bool> is_aborted = false;
  std::int64_t num_started = 0;
  std::int64_t num_put = 0, num_done = 0;  ///< pieces of work of streams
  int num_running = 0;                     ///< of them, begun and not done
  std::map<void*, std::size_t> registered;
};

namespace {

/// Never destroyed.
struct Library {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<ncclComm*> all;
  int num_alive = 0;
  int num_aborting = 0;  ///< of those alive
  int num_ids = 0;
  std::int64_t num_launches = 0;
  std::atomic<std::int64_t> num_collectives = 0;
};
Library& library() {
  static auto* const one = new Library();
  return *one;
}

struct Call {
  ncclComm* comm;
  Collective what;
  Queue* queue;
};
thread_local int group_depth = 0;
thread_local std::vector<Call> group;

/// Null, and a violation, for one that there is not, or not any more.
ncclComm* alive(ncclComm_t comm, const char* call) {
  const std::lock_guard lock(library().mutex);
  if (comm == nullptr || !library().all.contains(comm)) {
    report_violation(std::string(call) + " of no communicator");
    return nullptr;
  }
  const std::lock_guard own(comm->mutex);
  if (!comm->is_ended) return comm;
  report_violation(std::string(call) + " of a communicator that has ended");
  return nullptr;
}

void end(ncclComm* comm) {
  {
    const std::lock_guard own(comm->mutex);
    comm->is_ended = true;
    if (!comm->registered.empty()) report_violation("a communicator ends that still knows memory");
    for (const auto& [data, bytes] : comm->registered)
      note_registered(data, bytes, false);
    comm->registered.clear();
  }
  const std::lock_guard lock(library().mutex);
  --library().num_alive;
  library().changed.notify_all();
}

/// Whether the collective with this number is one that never ends.
bool never_ends(ncclComm* comm, std::int64_t number) {
  const Settings now = settings();
  if (number == now.loses_a_rank_at) {
    const std::lock_guard lock(comm->mutex);
    comm->state = ncclRemoteError;
    comm->error = "another rank was lost, says the fake";
    return true;
  }
  return number == now.hangs_at;
}

void run_one(ncclComm* comm, const Collective& what, std::int64_t number) {
  if (never_ends(comm, number)) {
    std::unique_lock lock(comm->mutex);
    comm->changed.wait(lock, [&] { return comm->is_aborted.load(); });
    return;
  }
  const auto size = static_cast<int>(comm->ranks.in_world.size());
  check_device_memory(what.send, static_cast<std::size_t>(what.sent_bytes(size)), what.name());
  check_device_memory(what.receive, static_cast<std::size_t>(what.received_bytes(size)),
                      what.name());
  const std::string problem = run(what, comm->ranks, [&] { return comm->is_aborted.load(); });
  if (problem.empty()) return;
  report_violation(problem);
  std::unique_lock lock(comm->mutex);
  comm->state = ncclInvalidUsage;
  comm->error = problem;
  comm->changed.wait(lock, [&] { return comm->is_aborted.load(); });
}

void run_all(ncclComm* comm, const std::vector<std::pair<Collective, std::int64_t>>& work) {
  {
    const std::lock_guard lock(comm->mutex);
    ++comm->num_running;
  }
  for (const auto& [what, number] : work)
    if (!comm->is_aborted) run_one(comm, what, number);
  const std::lock_guard lock(comm->mutex);
  --comm->num_running;
  ++comm->num_done;
  comm->changed.notify_all();
}

/// Puts what `comm` has to start on its stream, as one piece of work; `lock` is of its mutex. NCCL
/// may do what belongs together in any order: here the last goes first.
void start(ncclComm* comm, std::unique_lock<std::mutex>& lock) {
  const auto calls = std::exchange(comm->to_start, {});
  std::vector<std::pair<Collective, std::int64_t>> work;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    if (call->second != calls.front().second) report_violation("a group of several streams");
    work.emplace_back(call->first, library().num_collectives++);
    work.back().first.sequence = comm->num_started++;
  }
  if (!calls.empty()) {
    ++comm->num_put;
    comm->is_putting = true;
    // There may be no room on the stream.
    lock.unlock();
    calls.front().second->put([comm, work = std::move(work)] { run_all(comm, work); });
    lock.lock();
    comm->is_putting = false;
  }
  // An error may have come meanwhile.
  if (comm->state == ncclInProgress) comm->state = ncclSuccess;
}

ncclResult_t begin(ncclComm* comm, std::vector<std::pair<Collective, Queue*>> calls) {
  std::unique_lock lock(comm->mutex);
  if (comm->state == ncclInProgress) {
    report_violation("a communicator is used before its last call is under way");
    return ncclInvalidArgument;
  }
  if (comm->state != ncclSuccess) return comm->state;
  if (current_device() != comm->device)
    report_violation("a collective is started while another device is current");
  ++library().num_launches;
  comm->to_start = std::move(calls);
  comm->state = ncclInProgress;
  comm->num_in_progress = settings().num_in_progress;
  if (comm->blocks || comm->num_in_progress == 0) {
    start(comm, lock);
    return comm->state;
  }
  return ncclInProgress;
}

ncclResult_t add(Kind kind, const void* send, void* receive, std::size_t count, ncclDataType_t type,
                 ncclComm_t handle, cudaStream_t stream) {
  ncclComm* comm = alive(handle, "a collective");
  Queue* queue = queue_of(stream);
  if (comm == nullptr || queue == nullptr) return ncclInvalidArgument;
  Collective what{
      .kind = kind, .send = send, .receive = receive, .count = static_cast<std::int64_t>(count)};
  what.dtype = type == ncclFloat32    ? DType::f32
               : type == ncclBfloat16 ? DType::bf16
               : type == ncclFloat16  ? DType::f16
               : type == ncclInt64    ? DType::i64
                                      : DType::u8;
  if (group_depth == 0) return begin(comm, {{what, queue}});
  group.push_back({comm, what, queue});
  return ncclSuccess;
}

/// Finds the other ranks, on a thread of its own as NCCL does.
void connect_ranks(ncclComm* comm, ncclUniqueId id, int rank, int size) {
  int root = 0, number = 0;
  std::memcpy(&root, id.internal, sizeof(root));
  std::memcpy(&number, id.internal + sizeof(root), sizeof(number));
  std::string problem;
  Ranks ranks;
  const bool is_there = meet(root, number, rank, size, comm->device, ranks, problem,
                             [&] { return comm->is_aborted.load(); });
  const std::lock_guard lock(comm->mutex);
  comm->ranks = std::move(ranks);
  comm->error = problem;
  comm->is_connected = true;
  comm->state = !problem.empty() ? ncclInvalidUsage : is_there ? ncclSuccess : ncclInternalError;
  comm->changed.notify_all();
}

}  // namespace

namespace finetune::fake {

int num_communicators() {
  const std::lock_guard lock(library().mutex);
  return library().num_alive;
}
void wait_until_no_communicators() {
  std::unique_lock lock(library().mutex);
  library().changed.wait(lock, [] { return library().num_alive == 0; });
}
std::int64_t num_collectives() {
  return library().num_collectives;
}
std::int64_t num_launches() {
  return library().num_launches;
}

void count_anew() {
  library().num_collectives = 0;
  library().num_launches = 0;
}

}  // namespace finetune::fake

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclSuccess       ? "no error"
         : code == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the fake NCCL";
}
const char* ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string text;
  if (comm == nullptr) return "";
  const std::lock_guard lock(comm->mutex);
  text = comm->error;
  return text.c_str();
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (settings().gives_no_id) return ncclSystemError;
  *id = {};
  int root = 0;
  MPI_Comm_rank(messages(), &root);
  const std::lock_guard lock(library().mutex);
  const int number = ++library().num_ids;
  std::memcpy(id->internal, &root, sizeof(root));
  std::memcpy(id->internal + sizeof(root), &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (settings().cannot_connect) return ncclSystemError;
  auto* const comm = new ncclComm();
  comm->device = current_device();
  comm->blocks = config->blocking != 0;
  {
    const std::lock_guard lock(library().mutex);
    library().all.insert(comm);
    ++library().num_alive;
  }
  *handle = comm;
  std::thread thread([=] { connect_ranks(comm, id, rank, size); });
  if (!comm->blocks) {
    thread.detach();
    return ncclInProgress;
  }
  thread.join();
  return comm->state;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  ncclComm* comm = alive(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return ncclInvalidArgument;
  std::unique_lock lock(comm->mutex);
  if (comm->state == ncclInProgress && comm->is_connected && !comm->is_putting) {
    const bool waits_for_work = comm->is_finalized && comm->num_done < comm->num_put;
    const bool is_asked = settings().defect != Defect::under_way_at_once || comm->is_finalized;
    if (is_asked && --comm->num_in_progress < 0 && !waits_for_work) start(comm, lock);
  }
  const bool is_believed =
      settings().defect == Defect::under_way_at_once && !comm->to_start.empty();
  *state = is_believed ? ncclSuccess : comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ncclComm* comm = alive(handle, "ncclCommFinalize");
  if (comm == nullptr) return ncclInvalidArgument;
  std::unique_lock lock(comm->mutex);
  if (comm->state == ncclInProgress)
    report_violation("a communicator is finalized before its last call is under way");
  if (comm->state != ncclSuccess) return comm->state;
  comm->is_finalized = true;
  if (comm->blocks) {
    comm->changed.wait(lock, [&] { return comm->num_done == comm->num_put; });
    return ncclSuccess;
  }
  comm->state = ncclInProgress;
  comm->num_in_progress = settings().num_in_progress;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  ncclComm* comm = alive(handle, "ncclCommDestroy");
  if (comm == nullptr) return ncclInvalidArgument;
  {
    const std::lock_guard lock(comm->mutex);
    if (!comm->is_finalized || comm->state != ncclSuccess)
      report_violation("a communicator is destroyed before it is finalized");
  }
  end(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  ncclComm* comm = alive(handle, "ncclCommAbort");
  if (comm == nullptr) return ncclInvalidArgument;
  if (settings().aborts_together) {
    std::unique_lock lock(library().mutex);
    ++library().num_aborting;
    library().changed.notify_all();
    library().changed.wait(lock, [] { return library().num_aborting >= library().num_alive; });
  }
  {
    std::unique_lock lock(comm->mutex);
    comm->is_aborted = true;
    comm->changed.notify_all();
    // What has not begun finds it aborted.
    comm->changed.wait(
        lock, [&] { return comm->num_running == 0 && (comm->is_connected || comm->blocks); });
    for (const auto& [data, bytes] : comm->registered)
      note_registered(data, bytes, false);
    comm->registered.clear();
  }
  end(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) {
    report_violation("a group ends that has not begun");
    return ncclInvalidUsage;
  }
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Call> calls = std::exchange(group, {});
  if (settings().defect == Defect::group_is_lost) return ncclSuccess;
  std::vector<ncclComm*> comms;
  for (const Call& call : calls)
    if (std::ranges::find(comms, call.comm) == comms.end()) comms.push_back(call.comm);
  ncclResult_t result = ncclSuccess;
  for (ncclComm* comm : comms) {
    std::vector<std::pair<Collective, Queue*>> own;
    for (const Call& call : calls)
      if (call.comm == comm) own.emplace_back(call.what, call.queue);
    const ncclResult_t code = begin(comm, std::move(own));
    if (code != ncclSuccess && result != ncclInvalidArgument) result = code;
  }
  return result;
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(Kind::all_gather, send, receive, count, type, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  if (op != ncclSum) report_violation("ranks are to do something else than add");
  return add(Kind::reduce_scatter, send, receive, count, type, comm, stream);
}
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) report_violation("ranks are to do something else than add");
  return add(Kind::all_reduce, send, receive, count, type, comm, stream);
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, std::size_t bytes,
                              void** registration) {
  ncclComm* comm = alive(handle, "ncclCommRegister");
  if (comm == nullptr) return ncclInvalidArgument;
  check_device_memory(data, bytes, "ncclCommRegister");
  const std::lock_guard lock(comm->mutex);
  if (comm->state != ncclSuccess) return ncclInvalidArgument;
  comm->registered[data] = bytes;
  note_registered(data, bytes, true);
  *registration = data;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  ncclComm* comm = alive(handle, "ncclCommDeregister");
  if (comm == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(comm->mutex);
  const auto found = comm->registered.find(registration);
  if (found == comm->registered.end()) {
    report_violation("memory is deregistered that is not registered");
    return ncclInvalidArgument;
  }
  note_registered(found->first, found->second, false);
  comm->registered.erase(found);
  return ncclSuccess;
}
