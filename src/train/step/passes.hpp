#pragma once
// SPDX-License-Identifier: Apache-2.0
// One micro-batch through the model, as the events of its schedule say.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "data/steps/micro_batch.hpp"
#include "model/family.hpp"
#include "model/model.hpp"
#include "schedule/pass.hpp"
#include "shard/activation_offload.hpp"
#include "shard/host_copy.hpp"
#include "shard/model_shards.hpp"
#include "train/step/objective.hpp"

namespace finetune::train {

using schedule::Blocks;
using schedule::Pass;

/// What a pass works on. Nothing is owned.
struct Engine {
  const model::Architecture& architecture;
  const model::Model& model;
  model::Ops& ops;
  shard::ModelShards& shards;
  Blocks blocks = Blocks::kept;
  shard::ActivationOffload* offload = nullptr;  ///< who moves what offloaded blocks keep
  double dropout = 0;                           ///< of adapters, in forward_backward
  std::uint64_t dropout_seed = 0;               ///< and of noise
  double neftune_alpha = 0;                     ///< of noise on embeddings, in forward_backward
  /// The load of an expert is that of a micro-batch, all layers together; else of a sample and
  /// layer.
  bool balances_micro_batch = false;
  const Objective& objective = next_token_loss();
  /// Of `forward` and `logits`: false computes the model that the adapter was put on.
  bool uses_adapter = true;
};

/// What a pass differentiates: scale.loss * (sum of the objective's terms) and, for a model with
/// experts that asks for it, scale.balance * (load-balancing term summed over tokens and layers).
struct Scale {
  Scale(double of_loss, double of_balance = 0) : loss(of_loss), balance(of_balance) {}

  double loss;
  double balance;
};

/// Sums over the tokens of a pass.
struct PassResult : LossSum {
  double balance = 0;  ///< the load-balancing term
};

/// A pass whose sums a device may still be computing. Its micro-batch outlives it.
struct PendingPass {
  PendingLoss loss;
  std::optional<shard::HostCopy> balance = {};  ///< fp64, on its way; none: nothing is balanced

  /// Waits for the device.
  PassResult wait();
};

/// What becomes of a unit in backward whose gradient is on its way to the sums and whose weights
/// nobody reads any more (schedule::Rules::updates_in_backward): new weights, published.
using UpdateUnit = std::function<void(int unit)>;

/// Forward and backward of one micro-batch; starts to add its gradient, scaled, to the shards'
/// gradient sums. A rank without a micro-batch takes part with nothing: the gathers and reductions
/// are collective on fsdp (the last pass's also on dp_replicate), and somebody else's weights are
/// among this rank's shards. Where ranks share experts out it computes a sample of which nothing is
/// trained: others' tokens may need its experts. With `update`, in the last pass, it is called for
/// each trained unit, in the same order on every rank.
PendingPass start_forward_backward(const Engine& engine,
                                   const std::optional<data::MicroBatch>& batch, const Scale& scale,
                                   Pass pass, const UpdateUnit& update = {});
/// The same, done when it returns.
PassResult forward_backward(const Engine& engine, const std::optional<data::MicroBatch>& batch,
                            const Scale& scale, Pass pass = Pass::last);

/// What the next step's first pass begins with: for Optimizer::step.
std::vector<int> first_units(const Engine& engine);

/// What follows the passes of a step, all of them or those that were begun: gradients are summed,
/// what stayed gathered is released. Collective on fsdp and dp_replicate.
void end_passes(const Engine& engine);

/// Forward alone. Collective on fsdp, as above. Without the adapter every rank gathers what it
/// gathers with it. Throws: ErrorKind::deck if more than the adapter is trained: then the model
/// before is nowhere.
LossSum forward(const Engine& engine, const std::optional<data::MicroBatch>& batch);

/// What the model says of the labels of a micro-batch; undefined without one. Collective on fsdp,
/// as above.
model::LabelScores label_scores(const Engine& engine, const std::optional<data::MicroBatch>& batch);

/// Logits of the last position (or of all) of ids [B * L], with or without a cache; fp32.
/// Collective on fsdp: every rank passes the same sequence.
enum class Positions { last, all };
at::Tensor logits(const Engine& engine, const at::Tensor& ids_N, const model::Sequence& sequence,
                  Positions positions);

/// What one rank computes in `last_logits`.
struct NewTokens {
  at::Tensor ids_N;  ///< where the activations are
  model::Sequence sequence;
};

/// Logits [number of stretches, V] fp32 of the last token of each stretch. Collective on fsdp, as
/// `forward`: a rank with nothing takes part, and gets an undefined tensor. Ranks of tp pass the
/// same.
at::Tensor last_logits(const Engine& engine, const std::optional<NewTokens>& tokens);

}  // namespace finetune::train
