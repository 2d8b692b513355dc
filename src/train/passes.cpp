// SPDX-License-Identifier: Apache-2.0
#include "train/passes.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "model/rope.hpp"

namespace finetune::train {
namespace {

/// A unit that is gathered for as long as this lives. Collective on fsdp.
class OpenUnit {
 public:
  OpenUnit(shard::ModelShards& shards, int row) : shards_(shards), unit_(shards.unit_of(row)) {
    shards_.open(unit_);
  }
  ~OpenUnit() { shards_.close(unit_); }
  OpenUnit(const OpenUnit&) = delete;
  OpenUnit& operator=(const OpenUnit&) = delete;

  int unit() const { return unit_; }

 private:
  shard::ModelShards& shards_;
  int unit_;
};

struct Tokens {
  at::Tensor ids_N;
  at::Tensor labels_N;
  model::Sequence sequence;
};

at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  return at::from_blob(const_cast<std::int64_t*>(values.data()), {std::ssize(values)}, at::kLong)
      .clone();
}

std::optional<Tokens> prepare(const Engine& engine, const std::optional<data::MicroBatch>& batch) {
  if (!batch) return std::nullopt;
  return Tokens{to_tensor(batch->ids), to_tensor(batch->labels),
                model::make_sequence(engine.architecture, batch->batch, batch->length)};
}

int block_unit(const Engine& engine, std::int64_t i_layer) {
  return engine.shards.unit_of(engine.model.block_row(i_layer));
}

/// Embedding, then every block by `run_block(i_layer, x_ND)`. Without ids the units are gathered
/// all the same.
template <typename RunBlock>
at::Tensor run_blocks(const Engine& engine, const at::Tensor* ids_N, const RunBlock& run_block) {
  at::Tensor x_ND;
  {
    const OpenUnit open(engine.shards, engine.model.embedding_row());
    if (ids_N != nullptr) x_ND = engine.ops.embedding(*ids_N, engine.model.embedding_row());
  }
  for (std::int64_t i = 0; i < engine.architecture.num_layers; ++i) {
    engine.shards.open(block_unit(engine, i));
    if (ids_N != nullptr) x_ND = run_block(i, x_ND);
    engine.shards.close(block_unit(engine, i));
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

/// Final norm, head and loss; the gradient of the norm's input goes to `d_x`.
model::LossSum head_forward_backward(const Engine& engine, const Tokens* tokens,
                                     const at::Tensor& x_ND, double scale, at::Tensor& d_x) {
  const OpenUnit norm(engine.shards, engine.model.final_norm_row());
  const OpenUnit head(engine.shards, engine.model.head_row());
  engine.shards.open_gradient(norm.unit());
  engine.shards.open_gradient(head.unit());
  model::LossSum loss;
  if (tokens != nullptr) {
    Saved saved;
    saved.input = x_ND.detach().set_requires_grad(true);
    saved.output = engine.model.final_norm(engine.ops, saved.input);
    at::Tensor d_normed;
    loss = engine.ops.loss_and_gradient(saved.output.detach(), tokens->labels_N,
                                        engine.model.head_row(), scale, d_normed);
    d_x = pull_back(saved, d_normed);
  }
  // A tied head's gradient stays open: the embedding adds its own part at the end of the pass.
  engine.shards.reduce_gradient(norm.unit());
  return loss;
}

}  // namespace

model::LossSum forward_backward(const Engine& engine, const std::optional<data::MicroBatch>& batch,
                                double scale) {
  const std::optional<Tokens> tokens = prepare(engine, batch);
  std::vector<Saved> saved(static_cast<std::size_t>(engine.architecture.num_layers));
  const at::Tensor x_ND = run_blocks(
      engine, tokens ? &tokens->ids_N : nullptr, [&](std::int64_t i, const at::Tensor& x) {
        Saved& block = saved[static_cast<std::size_t>(i)];
        block.input = x.detach().set_requires_grad(true);
        block.output = engine.model.block(engine.ops, i, block.input, tokens->sequence);
        return block.output;
      });

  at::Tensor d_x;
  const model::LossSum loss =
      head_forward_backward(engine, tokens ? &*tokens : nullptr, x_ND, scale, d_x);

  for (std::int64_t i = engine.architecture.num_layers - 1; i >= 0; --i) {
    const int unit = block_unit(engine, i);
    engine.shards.open(unit);
    engine.shards.open_gradient(unit);
    if (tokens) d_x = pull_back(saved[static_cast<std::size_t>(i)], d_x);
    saved.pop_back();
    engine.shards.reduce_gradient(unit);
    engine.shards.close(unit);
  }

  const int embedding_unit = engine.shards.unit_of(engine.model.embedding_row());
  engine.shards.open_gradient(embedding_unit);
  if (tokens) engine.ops.embedding_backward(tokens->ids_N, d_x, engine.model.embedding_row());
  engine.shards.reduce_gradient(embedding_unit);
  return loss;
}

model::LossSum forward(const Engine& engine, const std::optional<data::MicroBatch>& batch) {
  const at::NoGradGuard no_autograd;
  const std::optional<Tokens> tokens = prepare(engine, batch);
  const at::Tensor x_ND = run_blocks(
      engine, tokens ? &tokens->ids_N : nullptr, [&](std::int64_t i, const at::Tensor& x) {
        return engine.model.block(engine.ops, i, x, tokens->sequence);
      });
  const OpenUnit norm(engine.shards, engine.model.final_norm_row());
  const OpenUnit head(engine.shards, engine.model.head_row());
  if (!tokens) return {};
  return engine.ops.loss(engine.model.final_norm(engine.ops, x_ND), tokens->labels_N,
                         engine.model.head_row());
}

at::Tensor logits(const Engine& engine, const at::Tensor& ids_N, const model::Sequence& sequence,
                  Positions positions) {
  const at::NoGradGuard no_autograd;
  at::Tensor x_ND = run_blocks(engine, &ids_N, [&](std::int64_t i, const at::Tensor& x) {
    return engine.model.block(engine.ops, i, x, sequence);
  });
  if (positions == Positions::last) x_ND = x_ND.narrow(0, x_ND.size(0) - 1, 1);
  const OpenUnit norm(engine.shards, engine.model.final_norm_row());
  const OpenUnit head(engine.shards, engine.model.head_row());
  return engine.ops.logits(engine.model.final_norm(engine.ops, x_ND), engine.model.head_row());
}

}  // namespace finetune::train
