#pragma once
// SPDX-License-Identifier: Apache-2.0
// How this process uses glibc's allocator.

namespace finetune::app {

/// Freed activations stay with the process and are used again by the next step. By default glibc
/// returns large blocks to the system at once, and every step pays for fresh, zeroed pages.
void keep_freed_memory();

}  // namespace finetune::app
