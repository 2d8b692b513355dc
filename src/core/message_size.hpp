#pragma once
// SPDX-License-Identifier: Apache-2.0
// The size of a message: what comm sends at a time and a plan counts.

#include <cstdint>

namespace finetune::core {

/// Elements of a sum that are packed, sent and added together: enough for full bandwidth, few
/// enough to stay in cache between packing and sending.
inline constexpr std::int64_t message_elements = std::int64_t{1} << 18;

}  // namespace finetune::core
