// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/waiting.hpp"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

namespace finetune::comm {

void Patience::wait() {
  // Some 20 us, what a message takes that is on its way.
  constexpr long num_looks = 60;
  if (++looks_ <= num_looks) return;
  // Else Linux adds 50 us to a sleep, to wake several threads at once.
  static thread_local const int is_punctual = ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  static_cast<void>(is_punctual);
  // Who has waited long loses little by sleeping longer, and looks cost a core's time.
  constexpr long shortest_ns = 30'000, longer_ns = 1'000, longest_ns = 250'000;
  const long pause_ns = shortest_ns + longer_ns * (looks_ - num_looks);
  const timespec pause{.tv_sec = 0, .tv_nsec = std::min(pause_ns, longest_ns)};
  ::nanosleep(&pause, nullptr);
}

void finish(std::span<MPI_Request> requests, const char* call, const std::function<void()>& look) {
  Patience patience;
  for (;;) {
    int is_done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &is_done,
                          MPI_STATUSES_IGNORE),
              call);
    if (is_done != 0) return;
    if (look) look();
    patience.wait();
  }
}

void arrive(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  finish(request, "MPI_Ibarrier");
}

}  // namespace finetune::comm
