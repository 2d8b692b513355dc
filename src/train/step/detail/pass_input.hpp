#pragma once
// SPDX-License-Identifier: Apache-2.0
// A micro-batch as the model reads it.

#include <ATen/ATen.h>

#include <optional>

#include "data/steps/micro_batch.hpp"
#include "model/ops.hpp"
#include "model/sequence.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// int64 [N]: of all B L tokens, or of those that are this rank's among the ranks of cp; and where
/// each row's tokens stand.
struct PassTokens {
  at::Tensor ids_N;     ///< on the device
  at::Tensor labels_N;  ///< on the host, which chooses the tokens that the head sees
  model::Sequence sequence;
};

/// What a rank computes in a pass in which `own` is its part: that, or, where others' tokens may
/// need its experts, a sample whose gradient is zero, which lives for ever.
const std::optional<data::MicroBatch>& computed_of(const Engine& engine,
                                                   const std::optional<data::MicroBatch>& own);

std::optional<PassTokens> prepare(const Engine& engine,
                                  const std::optional<data::MicroBatch>& batch);

/// Which sample every token is of, for the load of experts. `scale` of the load-balancing term.
model::Balance make_balance(const Engine& engine, const data::MicroBatch& batch, double scale);

/// The adapters' dropout for as long as a pass lasts.
class DropoutOfPass {
 public:
  DropoutOfPass(const Engine& engine, const std::optional<data::MicroBatch>& batch);
  ~DropoutOfPass();
  DropoutOfPass(const DropoutOfPass&) = delete;
  DropoutOfPass& operator=(const DropoutOfPass&) = delete;

 private:
  model::Ops& ops_;
};

/// Noise on what the embedding gives, in training: uniform within neftune_alpha / sqrt(L D) of 0
/// for a sample of L tokens, padding left out, and D channels. Samples that share a row each have
/// their own L. Source: Jain et al. 2023, NEFTune (arXiv 2310.05914).
class EmbeddingNoise {
 public:
  /// Of a rank's tokens of `batch`; nothing where the engine asks for none.
  EmbeddingNoise(const Engine& engine, const std::optional<data::MicroBatch>& batch);

  /// x [n, D]: the embedding of those tokens that this rank has between blocks.
  void add_to(at::Tensor& x_nD) const;

 private:
  std::uint64_t seed_ = 0;
  at::Tensor numbers_N_;                   ///< int64, as those of dropout; undefined: no noise
  at::Tensor scales_N_;                    ///< fp32
  std::int64_t part_ = 0, num_parts_ = 1;  ///< of N, among the ranks of tp
};

}  // namespace finetune::train
