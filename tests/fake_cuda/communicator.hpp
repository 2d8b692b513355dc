#pragma once
// SPDX-License-Identifier: Apache-2.0
// The fake's communicators, behind NCCL's names.

#include <nccl.h>

#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "fake_cuda/collectives.hpp"
#include "fake_cuda/runtime.hpp"

/// What ncclComm_t points at. Kept until the program ends, to know who is used too late.
struct ncclComm {
  std::mutex mutex;
  std::condition_variable changed;
  finetune::fake::Ranks ranks;
  int device = 0;
  ncclResult_t state = ncclInProgress;
  int num_in_progress = 0;  ///< so often it is still asked in vain
  bool is_connected = false;
  std::vector<std::pair<finetune::fake::Collective, finetune::fake::Queue*>> to_start;
  std::string error;
  bool is_finalized = false;
  bool is_ended = false;
  std::atomic<bool> is_aborted = false;
  std::int64_t num_started = 0;
  std::int64_t num_put = 0, num_done = 0;  ///< pieces of work of streams
  int num_running = 0;                     ///< of them, begun and not done
  std::map<void*, std::size_t> registered;
};

namespace finetune::fake {

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
Library& library();

/// Null, and a violation, for one that there is not, or not any more.
ncclComm* alive(ncclComm_t comm, const char* call);
void end(ncclComm* comm);

/// Puts what `comm`, whose mutex is held, has to start on its stream, as one piece of work; it is
/// in progress until there is room: no call of NCCL waits for that. What belongs together NCCL may
/// do in any order: here the last goes first.
void start(ncclComm* comm);

/// Tells `comm` to do these together.
ncclResult_t begin(ncclComm* comm, std::vector<std::pair<Collective, Queue*>> calls);

/// Finds the other ranks, on a thread of its own as NCCL does.
void connect_ranks(ncclComm* comm, ncclUniqueId id, int rank, int size);

}  // namespace finetune::fake
