#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank at the peak of a step, by category.

#include <cstdint>
#include <vector>

#include "plan/memory/communicators.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

/// Measured as what a process takes besides its tensors, on one rank and two (tests/bench/mesh.py):
/// 203 to 237 MiB; on the quickstart, which also validates, 256 to 291 MiB.
inline constexpr std::int64_t program_bytes = std::int64_t{235} << 20;

/// Of products in bf16 by the processor's instructions oneDNN keeps what it made for a shape, and
/// so does libtorch in front of it, in lists of so many (app::bound_kept_products). Measured on a
/// Llama of 3 million parameters with AVX-512 BF16, samples of 8 to 512 tokens: 0.97 MiB for one of
/// both.
inline constexpr std::int64_t num_kept_products = 96;
inline std::int64_t kept_product_bytes(const Numbers& numbers) {
  const bool keeps = numbers.compute == core::DType::bf16 && !numbers.widens;
  return keeps ? num_kept_products << 20 : 0;
}

/// What a GPU has less of free memory once a rank's process has made it current: CUDA's context. An
/// estimate until it was measured; processes on recent GPUs are said to take 0.4 to 0.6 GiB.
inline constexpr std::int64_t gpu_context_bytes = std::int64_t{512} << 20;

/// Whether gradients are written straight into their sums, as by a rank that shares units with
/// nobody: what ranks of tp hold in common is then summed once a step, not once a pass.
bool sums_in_place(const Mesh& mesh, const Numbers& numbers);

/// The largest of all ranks: padding counts on each. Items of no bytes are left out.
/// `table` is what `shards` lays out.
std::vector<MemoryItem> plan_memory(const PlanInput& request, const Mesh& mesh,
                                    const model::ParameterTable& table, const ShardMap& shards);

}  // namespace finetune::plan
