// SPDX-License-Identifier: Apache-2.0
#include "train/passes.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "core/fault.hpp"
#include "model/rope.hpp"
#include "plan/stages.hpp"
#include "train/open_stage.hpp"

namespace finetune::train {
namespace {

struct Tokens {
  at::Tensor ids_N;
  at::Tensor labels_N;
  model::Sequence sequence;
};

at::Tensor to_tensor(const std::vector<std::int64_t>& values, at::Device device) {
  return at::from_blob(const_cast<std::int64_t*>(values.data()), {std::ssize(values)}, at::kLong)
      .to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

std::vector<model::Stretch> stretches_of(const data::MicroBatch& batch) {
  std::vector<model::Stretch> stretches;
  std::int64_t begin = 0;
  for (const data::Stretch& stretch : batch.stretches) {
    stretches.push_back({begin, stretch.length, stretch.is_padding});
    begin += stretch.length;
  }
  return stretches;
}

std::optional<Tokens> prepare(const Engine& engine, const std::optional<data::MicroBatch>& batch) {
  if (!batch) return std::nullopt;
  const at::Device device = engine.shards.options().device;
  return Tokens{to_tensor(batch->ids, device), to_tensor(batch->labels, device),
                batch->stretches.empty()
                    ? model::make_sequence(engine.architecture, batch->batch, batch->length, device)
                    : model::make_sequence(engine.architecture, batch->batch, batch->length,
                                           stretches_of(*batch), device)};
}

/// Which sample every token is of, for the load of experts.
model::Balance make_balance(const Engine& engine, const data::MicroBatch& batch, double scale) {
  const at::Device device = engine.shards.options().device;
  model::Balance balance;
  balance.scale = scale;
  balance.sum = at::zeros({}, at::TensorOptions(at::kDouble).device(device));
  std::vector<data::Stretch> stretches = batch.stretches;
  if (stretches.empty())
    stretches.assign(static_cast<std::size_t>(batch.batch), {batch.length, false});
  for (const data::Stretch& stretch : stretches)
    balance.num_samples += stretch.is_padding ? 0 : 1;
  std::vector<std::int64_t> samples;
  std::int64_t sample = 0;
  for (const data::Stretch& stretch : stretches) {
    const std::int64_t own = stretch.is_padding ? balance.num_samples : sample++;
    samples.insert(samples.end(), static_cast<std::size_t>(stretch.length), own);
  }
  balance.sample_N = to_tensor(samples, device);
  if (!engine.balances_micro_batch) return balance;
  balance.choices_E =
      at::zeros({engine.architecture.experts.num}, at::TensorOptions(at::kFloat).device(device));
  const auto num_padding = std::ranges::count(samples, balance.num_samples);
  balance.num_choosing = static_cast<double>((std::ssize(samples) - num_padding) *
                                             engine.architecture.num_layers_with_experts());
  return balance;
}

using plan::Stages;

/// A number for each token that no other token of the run has, whatever computes it.
std::vector<std::int64_t> token_numbers(const data::MicroBatch& batch) {
  constexpr std::int64_t tokens_a_row = std::int64_t{1} << 20;
  std::vector<std::int64_t> numbers;
  numbers.reserve(batch.ids.size());
  for (std::int64_t row = 0; row < batch.batch; ++row)
    for (std::int64_t i = 0; i < batch.length; ++i)
      numbers.push_back((batch.first_row + row) * tokens_a_row + i);
  return numbers;
}

/// The adapters' dropout for as long as a pass lasts.
class DropoutOfPass {
 public:
  DropoutOfPass(const Engine& engine, const std::optional<data::MicroBatch>& batch)
      : ops_(engine.ops) {
    if (!batch || engine.dropout == 0) return;
    ops_.set_dropout(
        model::Dropout{engine.dropout, engine.dropout_seed,
                       to_tensor(token_numbers(*batch), engine.shards.options().device)});
  }
  ~DropoutOfPass() { ops_.set_dropout(std::nullopt); }
  DropoutOfPass(const DropoutOfPass&) = delete;
  DropoutOfPass& operator=(const DropoutOfPass&) = delete;

 private:
  model::Ops& ops_;
};

Stages stages_of(const Engine& engine) {
  return Stages(engine.shards.table(), engine.shards.map(), engine.model.head_row());
}

void prefetch(const Engine& engine, const Stages& stages, int stage) {
  if (!engine.shards.options().overlap) return;
  for (const int unit : stages.units(stage))
    engine.shards.prefetch(unit);
}

/// Embedding, then every block by `run_block(i_layer, x_ND)`. Without ids the units are gathered
/// all the same. The last block's units stay open for as long as `last_block` lives.
template <typename RunBlock>
at::Tensor run_blocks(const Engine& engine, const Stages& stages, const at::Tensor* ids_N,
                      const RunBlock& run_block, std::optional<OpenStage>* last_block = nullptr) {
  at::Tensor x_ND;
  {
    const OpenStage open(engine.shards, stages.units(stages.embedding()));
    prefetch(engine, stages, stages.embedding() + 1);
    if (ids_N != nullptr) x_ND = engine.ops.embedding(*ids_N, engine.model.embedding_row());
  }
  for (std::int64_t i = 0; i < engine.architecture.num_layers; ++i) {
    const OpenStage open(engine.shards, stages.units(stages.block(i)));
    if (last_block != nullptr && i + 1 == engine.architecture.num_layers)
      last_block->emplace(engine.shards, stages.units(stages.block(i)));
    prefetch(engine, stages, stages.block(i) + 1);
    if (ids_N != nullptr) x_ND = run_block(i, x_ND);
  }
  return x_ND;
}

/// A block's ends in the autograd graph that backward needs.
struct Saved {
  at::Tensor input;
  at::Tensor output;
};

at::Tensor pull_back(const Saved& saved, const at::Tensor& d_output) {
  return torch::autograd::grad({saved.output}, {saved.input}, {d_output})[0];
}

void open_gradients(const Engine& engine, const std::vector<int>& units) {
  for (const int unit : units)
    engine.shards.open_gradient(unit);
}

/// Backward has left a stage: what no earlier one has goes to the sums.
void reduce_gradients(const Engine& engine, const std::vector<int>& units, Pass pass) {
  for (const int unit : units)
    engine.shards.reduce_gradient(unit, pass);
}

/// Final norm, head and loss; the gradient of the norm's input goes to `d_x`.
model::LossSum head_forward_backward(const Engine& engine, const Tokens& tokens,
                                     const at::Tensor& x_ND, double scale, at::Tensor& d_x) {
  Saved saved;
  saved.input = x_ND.detach().set_requires_grad(true);
  saved.output = engine.model.final_norm(engine.ops, saved.input);
  at::Tensor d_normed;
  const model::LossSum loss = engine.ops.loss_and_gradient(
      saved.output.detach(), tokens.labels_N, engine.model.head_row(), scale, d_normed);
  d_x = pull_back(saved, d_normed);
  return loss;
}

Saved run_block(const Engine& engine, const Tokens& tokens, std::int64_t i_layer,
                const at::Tensor& x_ND) {
  Saved block;
  block.input = x_ND.detach().set_requires_grad(true);
  block.output = engine.model.block(engine.ops, i_layer, block.input, tokens.sequence);
  return block;
}

}  // namespace

PassResult forward_backward(const Engine& engine, const std::optional<data::MicroBatch>& batch,
                            const Scale& scale, Pass pass) {
  const Stages stages = stages_of(engine);
  const OpenStage all_along(engine.shards, stages.all_along());
  std::optional<Tokens> tokens = prepare(engine, batch);
  const DropoutOfPass dropout(engine, batch);
  model::Balance balance;
  if (tokens && scale.balance != 0) {
    balance = make_balance(engine, *batch, scale.balance);
    tokens->sequence.balance = &balance;
  }
  std::vector<Saved> saved(static_cast<std::size_t>(engine.architecture.num_layers));
  // Only the head comes between the last block's forward and its backward.
  std::optional<OpenStage> last_block;
  const at::Tensor x_ND = run_blocks(
      engine, stages, tokens ? &tokens->ids_N : nullptr,
      [&](std::int64_t i, const at::Tensor& x) {
        Saved& block = saved[static_cast<std::size_t>(i)];
        if (engine.blocks == Blocks::kept) {
          block = run_block(engine, *tokens, i, x);
          return block.output;
        }
        const at::NoGradGuard no_autograd;
        block.input = x;
        return engine.model.block(engine.ops, i, x, tokens->sequence);
      },
      &last_block);
  balance.is_counting = false;

  at::Tensor d_x;
  PassResult result;
  {
    const OpenStage open(engine.shards, stages.units(stages.head()));
    open_gradients(engine, stages.units(stages.head()));
    if (tokens) {
      static_cast<model::LossSum&>(result) =
          head_forward_backward(engine, *tokens, x_ND, scale.loss, d_x);
    }
    core::fault::hit("step.bwd");
    reduce_gradients(engine, stages.completed(stages.head()), pass);
  }
  for (std::int64_t i = engine.architecture.num_layers - 1; i >= 0; --i) {
    const int stage = stages.block(i);
    const OpenStage open(engine.shards, stages.units(stage));
    last_block.reset();
    if (i > 0) prefetch(engine, stages, stage - 1);
    open_gradients(engine, stages.units(stage));
    if (tokens) {
      Saved& block = saved.back();
      if (engine.blocks == Blocks::recomputed) block = run_block(engine, *tokens, i, block.input);
      d_x = pull_back(block, d_x);
    }
    saved.pop_back();
    reduce_gradients(engine, stages.completed(stage), pass);
  }
  open_gradients(engine, stages.units(stages.embedding()));
  if (tokens) engine.ops.embedding_backward(tokens->ids_N, d_x, engine.model.embedding_row());
  reduce_gradients(engine, stages.completed(stages.embedding()), pass);
  if (balance.sum.defined()) result.balance = balance.sum.item<double>();
  return result;
}

model::LossSum forward(const Engine& engine, const std::optional<data::MicroBatch>& batch) {
  const at::NoGradGuard no_autograd;
  const Stages stages = stages_of(engine);
  const OpenStage all_along(engine.shards, stages.all_along());
  const std::optional<Tokens> tokens = prepare(engine, batch);
  const at::Tensor x_ND = run_blocks(
      engine, stages, tokens ? &tokens->ids_N : nullptr, [&](std::int64_t i, const at::Tensor& x) {
        return engine.model.block(engine.ops, i, x, tokens->sequence);
      });
  const OpenStage open(engine.shards, stages.units(stages.head()));
  if (!tokens) return {};
  return engine.ops.loss(engine.model.final_norm(engine.ops, x_ND), tokens->labels_N,
                         engine.model.head_row());
}

at::Tensor logits(const Engine& engine, const at::Tensor& ids_N, const model::Sequence& sequence,
                  Positions positions) {
  const at::NoGradGuard no_autograd;
  const Stages stages = stages_of(engine);
  const OpenStage all_along(engine.shards, stages.all_along());
  at::Tensor x_ND = run_blocks(engine, stages, &ids_N, [&](std::int64_t i, const at::Tensor& x) {
    return engine.model.block(engine.ops, i, x, sequence);
  });
  if (positions == Positions::last) x_ND = x_ND.narrow(0, x_ND.size(0) - 1, 1);
  const OpenStage open(engine.shards, stages.units(stages.head()));
  return engine.ops.logits(engine.model.final_norm(engine.ops, x_ND), engine.model.head_row());
}

}  // namespace finetune::train
