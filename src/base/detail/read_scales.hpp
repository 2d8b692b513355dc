#pragma once
// SPDX-License-Identifier: Apache-2.0
// Planes of packed tensors that scale others, out of files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "model/packing.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// Elements [first, ...) of the tensor `name`, which has the plane's shape, in the plane's floating
/// dtype. Throws: ErrorKind::input naming the first one that is not finite; what `files` throw.
void read_finite(const weights::ModelFiles& files, const std::string& name,
                 const model::Plane& plane, std::int64_t first, std::span<std::byte> target);

}  // namespace finetune::base
