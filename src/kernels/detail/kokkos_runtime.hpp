#pragma once
// SPDX-License-Identifier: Apache-2.0
// The life of Kokkos on a GPU, for files that do not include it. Only where Kokkos has CUDA.

namespace finetune::kernels {

bool is_kokkos_running();
/// False, and nothing done, if it runs or has ended: it starts once in a process.
/// Throws: ErrorKind::environment if it cannot.
bool start_kokkos(int gpu);
/// Waits for the kernels that have been started.
void end_kokkos();

}  // namespace finetune::kernels
