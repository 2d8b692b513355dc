// SPDX-License-Identifier: Apache-2.0
#include "fake_cuda/communicator.hpp"

#include <cstring>

namespace finetune::fake {
namespace {

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
  for (const Message& message : what.messages)
    check_device_memory(message.memory, static_cast<std::size_t>(message.bytes), what.name());
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

}  // namespace

Library& library() {
  static auto* const one = new Library();
  return *one;
}

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

namespace {

/// What a stream is to do, with the numbers that it has from now on.
std::function<void()> work_of(ncclComm* comm,
                              const std::vector<std::pair<Collective, Queue*>>& calls) {
  std::vector<std::pair<Collective, std::int64_t>> work;
  Collective messages{.kind = Kind::messages};
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    if (call->second != calls.front().second) report_violation("a group of several streams");
    if (call->first.kind == Kind::messages) {
      const std::vector<Message>& more = call->first.messages;
      // Those of a pair come in order.
      messages.messages.insert(messages.messages.begin(), more.begin(), more.end());
      continue;
    }
    work.emplace_back(call->first, library().num_collectives++);
    work.back().first.sequence = comm->num_started++;
  }
  // They have no number that ranks could compare: others may have none.
  if (!messages.messages.empty()) work.emplace_back(messages, library().num_collectives++);
  ++comm->num_put;
  return [comm, work = std::move(work)] { run_all(comm, work); };
}

}  // namespace

void start(ncclComm* comm) {
  if (!comm->to_start.empty()) {
    Queue* const queue = comm->to_start.front().second;
    if (!queue->put_if_room([&] { return work_of(comm, comm->to_start); })) return;
    comm->to_start.clear();
  }
  comm->state = ncclSuccess;
}

ncclResult_t begin(ncclComm* comm, std::vector<std::pair<Collective, Queue*>> calls) {
  const std::lock_guard lock(comm->mutex);
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
  if (comm->num_in_progress == 0) start(comm);
  return comm->state;
}

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
