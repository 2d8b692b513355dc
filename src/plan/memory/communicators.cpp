// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/communicators.hpp"

namespace finetune::plan {
namespace {

/// A communicator's buffers for 16 channels or more, each of a few MiB per peer and protocol.
constexpr std::int64_t communicator_buffers_bytes = std::int64_t{512} << 20;

}  // namespace

std::int64_t communicator_bytes(const Mesh& mesh) {
  std::int64_t bytes = 0;
  for (const MeshGroup* group : {&groups::fsdp, &groups::dp_replicate})
    if (mesh.communicates(*group)) bytes += communicator_buffers_bytes;
  for (const MeshGroup* group : {&groups::tp, &groups::cp})
    if (mesh.size(*group) > 1) bytes += communicator_buffers_bytes;
  if (mesh.ep > 1) {
    bytes += communicator_buffers_bytes;
    if (mesh.size(groups::fsdp) > mesh.ep) bytes += communicator_buffers_bytes;
  }
  return bytes;
}

}  // namespace finetune::plan
