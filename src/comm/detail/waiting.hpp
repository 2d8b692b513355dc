#pragma once
// SPDX-License-Identifier: Apache-2.0
// How a thread waits for other ranks: MPI's blocking calls keep a core busy for as long as they
// wait, which takes it from the rank that is waited for where ranks share cores, and from this
// rank's other threads elsewhere.

#include <functional>
#include <span>

#include "comm/mpi/detail/mpi.hpp"

namespace finetune::comm {

/// Looks again at once, then sleeps between looks, longer the longer it has waited. It never
/// yields: kernels with EEVDF (Linux since 6.6) set a thread that yields back by its whole time
/// slice, each time, and after some thousand times it does not run for minutes.
class Patience {
 public:
  void wait();

 private:
  long looks_ = 0;
};

/// Returns when all of them are done. `call` names what is waited for; `look` is called before each
/// further look, and may throw. Throws: as check_mpi.
void finish(std::span<MPI_Request> requests, const char* call,
            const std::function<void()>& look = nullptr);
inline void finish(MPI_Request& request, const char* call) {
  finish(std::span(&request, 1), call);
}

/// Returns when all ranks are here: for collectives that MPI has in blocking form only, or whose
/// blocking form is faster. Collective on `comm`.
void arrive(MPI_Comm comm);

}  // namespace finetune::comm
