// SPDX-License-Identifier: Apache-2.0
// Never reached: without CUDA the tests that need a device skip.
#include "unit/comm/group_memory.hpp"

namespace finetune::tests {

DeviceBytes make_device_bytes(std::size_t) {
  return {};
}
void copy_to_device(const DeviceBytes&, std::span<const std::byte>) {}
void copy_to_host(std::span<std::byte>, const DeviceBytes&) {}
void* compute_stream() {
  return nullptr;
}

}  // namespace finetune::tests
