#pragma once
// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows of logits against one target each, with its gradient in place.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// A row with this target has loss 0 and no gradient.
inline constexpr std::int64_t ignored_target = -100;

/// losses[n] = log(sum_v exp(logits[n, v])) - logits[n, targets[n]].
///
/// Shapes: logits [N, V], targets [N] (each in [0, V) or ignored_target), losses [N], hits [N] or
/// empty. A hit is a row whose first largest logit is the target, or that has none.
/// T is float or bf16; arithmetic is fp32. Results do not depend on the number of threads.
/// Throws: ErrorKind::bug if sizes or (on the host) targets do not fit.
template <class T>
void cross_entropy(std::span<const T> logits, std::span<const std::int64_t> targets,
                   std::span<float> losses, std::span<bool> hits = {}, const Place& place = {});

/// The same; and replaces `logits` by the gradient of the sum over n of scales[n] * losses[n].
/// scales [N].
template <class T>
void cross_entropy_with_gradient(std::span<T> logits, std::span<const std::int64_t> targets,
                                 std::span<const float> scales, std::span<float> losses,
                                 std::span<bool> hits = {}, const Place& place = {});

}  // namespace finetune::kernels
