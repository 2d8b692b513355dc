#pragma once
// SPDX-License-Identifier: Apache-2.0
// Signals that ask a run to end with a checkpoint.

namespace finetune::train {

/// From now on SIGUSR1 and SIGTERM are remembered instead of ending the process. A second SIGTERM
/// ends it at once.
void watch_signals();

/// Whether one has come to this rank.
bool stop_is_asked();

}  // namespace finetune::train
