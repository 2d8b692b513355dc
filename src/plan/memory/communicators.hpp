#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that its links to others take.

#include <cstdint>

#include "plan/layout/mesh.hpp"

namespace finetune::plan {

/// What the communicators of a mesh take of a GPU: buffers per channel and peer. None on one rank.
/// An estimate until it was measured.
std::int64_t communicator_bytes(const Mesh& mesh);

}  // namespace finetune::plan
