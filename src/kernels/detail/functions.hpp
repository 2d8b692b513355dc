#pragma once
// SPDX-License-Identifier: Apache-2.0
// Kokkos' marks of the functions that a GPU may call.

#ifdef FINETUNE_HOST_ALONE
// A file without kernels for a GPU, in a build whose Kokkos has CUDA: its headers want nvcc.
#define KOKKOS_INLINE_FUNCTION inline
#define KOKKOS_FORCEINLINE_FUNCTION inline __attribute__((always_inline))
#else
#include <Kokkos_Macros.hpp>
#endif

#if defined(KOKKOS_ENABLE_CUDA) && !defined(FINETUNE_HOST_ALONE)
/// This file is compiled for the host and for a GPU.
#define FINETUNE_FOR_GPUS
#endif
