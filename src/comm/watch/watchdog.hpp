#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ends a job whose ranks wait for one that does not come, and says which.

#include <memory>

#include "comm/environment.hpp"

namespace finetune::comm {

/// A thread next to the computation. It sends what this rank does (Environment::activity) to two
/// ranks that judge it, over a communicator of its own: the first rank, and the last in case the
/// first does not answer. Once a rank has been inside a collective for longer than the timeout,
/// one of them prints who is late (see judge), has all write their flight records, and aborts the
/// job with ErrorKind::io's exit code.
///
/// Time in which a rank does not run at all, for example a job suspended by its batch system or a
/// machine that stands still, does not count as waiting. Costs two messages of 330 bytes per rank
/// every fifth of the timeout, at most 5 s.
class Watchdog {
 public:
  /// Collective on the environment's world, with the same `timeout_s` everywhere; 0 watches
  /// nothing. Watches nothing, with a warning, if MPI does not let several threads call it.
  /// `interval_s`: between two messages of a rank; 0: as above.
  Watchdog(const Environment& environment, double timeout_s, double interval_s = 0);
  /// Collective on the world, and watched to its end. While an exception unwinds it only stops
  /// this rank's thread, since the others may never come.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  class Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace finetune::comm
