#pragma once
// SPDX-License-Identifier: Apache-2.0
// Host memory that a GPU copies from and to by itself.

#include <ATen/ATen.h>

namespace finetune::model {

/// An uninitialised tensor in pinned host memory. Throws: core::Error of ErrorKind::environment if
/// the host has no more of it to pin, which libtorch would report as the GPU's.
at::Tensor pinned_empty(at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace finetune::model
