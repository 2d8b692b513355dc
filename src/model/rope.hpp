#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rotary position tables.

#include <cstdint>
#include <span>
#include <vector>

#include "model/architecture.hpp"
#include "model/sequence.hpp"

namespace finetune::model {

/// Angle per position of each pair of `channels`, [channels / 2], after scaling.
/// Source: Su et al. 2021 (arXiv 2104.09864); the llama3 scaling: Llama 3.1's published
/// configuration; yarn: Peng et al. 2023 (arXiv 2309.00071); longrope: Ding et al. 2024 (arXiv
/// 2402.13753). Computed in fp32, as the models were trained with.
std::vector<float> rope_frequencies(const Positions& positions, std::int64_t channels);

/// A training sequence of [batch, length] tokens at positions 0 .. length - 1, whose
/// activations are on `device`.
Sequence make_sequence(const Architecture& architecture, std::int64_t batch, std::int64_t length,
                       at::Device device = at::kCPU);

/// The same rows where several samples share one: `stretches` cover all batch * length tokens in
/// order, and positions start again in each.
Sequence make_sequence(const Architecture& architecture, std::int64_t batch, std::int64_t length,
                       std::vector<Stretch> stretches, at::Device device = at::kCPU);

/// One sequence of `length` tokens that continues `cache`.
Sequence make_sequence(const Architecture& architecture, std::int64_t length, KvCache& cache,
                       at::Device device = at::kCPU);

/// New tokens of several texts at once, `lengths` of each, which continue `caches`. Tables that
/// reach far enough are taken over from `earlier`, a sequence like this one.
Sequence make_sequence(const Architecture& architecture, std::span<const std::int64_t> lengths,
                       std::vector<KvCache*> caches, const Sequence& earlier,
                       at::Device device = at::kCPU);

}  // namespace finetune::model
