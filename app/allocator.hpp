#pragma once
// SPDX-License-Identifier: Apache-2.0
// How this process uses memory beside its tensors.

namespace finetune::app {

/// Freed activations stay with the process and are used again by the next step. By default glibc
/// returns large blocks to the system at once, and every step pays for fresh, zeroed pages.
void keep_freed_memory();

/// oneDNN keeps what it made for the last 1,024 shapes of products, and libtorch in front of it as
/// many: of samples of all lengths that is a gigabyte. From now on it is plan::num_kept_products.
/// Before libtorch computes anything.
void bound_kept_products();

}  // namespace finetune::app
