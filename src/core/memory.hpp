#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the system says about main memory (Linux).

#include <cstdint>
#include <filesystem>

namespace finetune::core {

/// Bytes that the processes of this job can still take on this node without swapping: MemAvailable,
/// or less where a control group (v1 or v2, any level) limits them. Cached files that a group could
/// drop count as free. Very large if the system does not say.
/// `root` holds proc/ and sys/; another than "/" is for tests.
std::int64_t available_memory_bytes(const std::filesystem::path& root = "/");

/// Pages of this process in main memory, now and at their highest; 0 if the system does not say.
std::int64_t resident_bytes();
std::int64_t peak_resident_bytes();

}  // namespace finetune::core
