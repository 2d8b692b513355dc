// SPDX-License-Identifier: Apache-2.0
// NCCL, as much of it as src/comm calls: communicators and their life, calls that are under way
// only after they were asked for, groups of calls.
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "fake_cuda/communicator.hpp"

using namespace finetune::fake;
using finetune::core::DType;

namespace {

struct Call {
  ncclComm* comm;
  Collective what;
  Queue* queue;
};
thread_local int group_depth = 0;
thread_local std::vector<Call> group;

ncclResult_t call(ncclComm* comm, const Collective& what, Queue* queue) {
  if (group_depth == 0) return begin(comm, {{what, queue}});
  group.push_back({comm, what, queue});
  return ncclSuccess;
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
  return call(comm, what, queue);
}

ncclResult_t add(const Message& message, ncclDataType_t type, ncclComm_t handle,
                 cudaStream_t stream) {
  ncclComm* comm = alive(handle, "a message");
  Queue* queue = queue_of(stream);
  if (comm == nullptr || queue == nullptr) return ncclInvalidArgument;
  if (type != ncclUint8) report_violation("a message of something else than bytes");
  const auto size = static_cast<int>(comm->ranks.in_world.size());
  if (message.peer < 0 || message.peer >= size) {
    report_violation("a message of a rank that there is not");
    return ncclInvalidArgument;
  }
  return call(comm, {.kind = Kind::messages, .messages = {message}}, queue);
}

}  // namespace

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
  if (config->blocking != 0) report_violation("a communicator whose calls block");
  {
    const std::lock_guard lock(library().mutex);
    library().all.insert(comm);
    ++library().num_alive;
  }
  *handle = comm;
  std::thread([=] { connect_ranks(comm, id, rank, size); }).detach();
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  ncclComm* comm = alive(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(comm->mutex);
  if (comm->state == ncclInProgress && comm->is_connected) {
    const bool waits_for_work = comm->is_finalized && comm->num_done < comm->num_put;
    const bool is_asked = settings().defect != Defect::under_way_at_once || comm->is_finalized;
    if (is_asked && --comm->num_in_progress < 0 && !waits_for_work) start(comm);
  }
  const bool is_believed =
      settings().defect == Defect::under_way_at_once && !comm->to_start.empty();
  *state = is_believed ? ncclSuccess : comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ncclComm* comm = alive(handle, "ncclCommFinalize");
  if (comm == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(comm->mutex);
  if (comm->state == ncclInProgress)
    report_violation("a communicator is finalized before its last call is under way");
  if (comm->state != ncclSuccess) return comm->state;
  comm->is_finalized = true;
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
    comm->changed.wait(lock, [&] { return comm->num_running == 0 && comm->is_connected; });
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

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add({.way = Message::Way::out,
              .peer = peer,
              .memory = const_cast<void*>(send),
              .bytes = static_cast<std::int64_t>(count)},
             type, comm, stream);
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add({.way = Message::Way::in,
              .peer = peer,
              .memory = receive,
              .bytes = static_cast<std::int64_t>(count)},
             type, comm, stream);
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
