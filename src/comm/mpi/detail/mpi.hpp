#pragma once
// SPDX-License-Identifier: Apache-2.0
// MPI's header and the check of its return codes.

#include <mpi.h>

#include "core/error.hpp"

namespace finetune::comm {

/// Throws ErrorKind::environment naming `call` if MPI returned an error.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  core::fail(core::ErrorKind::environment, {call, "MPI reports an error", text,
                                            "Look at the network and at the other ranks' output."});
}

}  // namespace finetune::comm
