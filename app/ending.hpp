#pragma once
// SPDX-License-Identifier: Apache-2.0
// How this process ends.

namespace finetune::app {

/// To be called first in main(). At its end the process runs what was registered for that since,
/// writes out its streams, and is gone. Libraries loaded with the program are not unloaded: of
/// 0.3 s that a start and an end of libtorch take, a third goes to forgetting each of its
/// operators.
void end_without_unloading();

}  // namespace finetune::app
