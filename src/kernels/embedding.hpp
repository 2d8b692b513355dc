#pragma once
// SPDX-License-Identifier: Apache-2.0
// Looks up rows of the embedding matrix, and adds up their gradients without atomics.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// y[n] = weight[ids[n]].
///
/// Shapes: weight [V, D], ids [N] (each in [0, V)), y [N, D] with D = `dim`.
/// Throws: ErrorKind::bug if sizes or ids do not fit.
template <class T>
void embedding(std::span<const T> weight, std::span<const std::int64_t> ids, std::int64_t dim,
               std::span<T> y);

/// dweight[ids[n]] += dy[n] for all n, in the order of n: summed in fp32 and rounded to `Gradient`
/// once a row and call, so that a frequent id does not lose its many small gradients.
///
/// Shapes: dy [N, D], ids [N] (each in [0, V)), dweight [V, D]. T and Gradient are
/// float or bf16. Results do not depend on the number of threads.
/// Throws: ErrorKind::bug if sizes or ids do not fit.
template <class T, class Gradient>
void embedding_backward(std::span<const T> dy, std::span<const std::int64_t> ids, std::int64_t dim,
                        std::span<Gradient> dweight);

/// The same of ids in rising order, where `place` is: ids[i] is that of dy[order[i]], and `order`
/// rises among equal ids. On a GPU one launch, which does not look whether ids lie in [0, V).
template <class T, class Gradient>
void embedding_backward_sorted(std::span<const T> dy, std::span<const std::int64_t> ids,
                               std::span<const std::int64_t> order, std::int64_t dim,
                               std::span<Gradient> dweight, const Place& place = {});

}  // namespace finetune::kernels
