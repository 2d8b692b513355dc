#pragma once
// SPDX-License-Identifier: Apache-2.0
// Device memory for the tests of groups, in builds with and without CUDA.

#include <cstddef>
#include <memory>
#include <span>

namespace finetune::tests {

/// Bytes on the device that is current.
using DeviceBytes = std::shared_ptr<std::byte>;

DeviceBytes make_device_bytes(std::size_t count);
/// In the order of the stream that computes.
void copy_to_device(const DeviceBytes& to, std::span<const std::byte> from);
/// Waits for the stream that computes, and for nothing else.
void copy_to_host(std::span<std::byte> to, const DeviceBytes& from);

/// A stream that does not wait for others, as torch's; kept until the program ends.
void* compute_stream();

}  // namespace finetune::tests
