#pragma once
// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels: conversion, accumulation, scaling, addition.

#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

// All spans of a call have the same size (else ErrorKind::bug). Arithmetic is fp32, rounded once to
// nearest, ties to even. Spans may be the same memory, but not overlap otherwise.

/// target = source.
void convert(std::span<const float> source, std::span<bf16> target);
void convert(std::span<const bf16> source, std::span<float> target);

/// target += source.
void accumulate(std::span<const bf16> source, std::span<float> target);
void accumulate(std::span<const float> source, std::span<float> target);

/// values *= factor.
void scale(std::span<float> values, float factor);
void scale(std::span<bf16> values, float factor);

/// sum = a + b.
void add(std::span<const float> a, std::span<const float> b, std::span<float> sum);
void add(std::span<const bf16> a, std::span<const bf16> b, std::span<bf16> sum);

}  // namespace finetune::kernels
