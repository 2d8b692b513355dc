// SPDX-License-Identifier: Apache-2.0
#include "train/step/passes.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/activity.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "model/kept.hpp"
#include "model/products.hpp"
#include "model/upload.hpp"
#include "plan/layout/stages.hpp"
#include "train/step/detail/events.hpp"
#include "train/step/detail/pass_input.hpp"
#include "train/step/detail/side_stream.hpp"

namespace finetune::train {
namespace {

using schedule::Action;
using schedule::Event;
using schedule::Stages;

Stages stages_of(const Engine& engine) {
  return plan::stages_of(engine.shards.table(), engine.shards.map(), engine.model.head_row());
}

schedule::Rules rules_of(const Engine& engine) {
  const shard::Options& options = engine.shards.options();
  return plan::rules_of(options.sharding, options.prefetch_depth(), engine.blocks);
}

/// A block's ends in the autograd graph that backward needs.
struct Saved {
  at::Tensor input;
  at::Tensor output;
  SideStream::Sides sides = {};
  std::unique_ptr<shard::OffloadedBlock> offloaded = {};  ///< null: all stays where it is
  std::optional<model::KeptTensor> input_away = {};       ///< of a block that is recomputed
};

/// Leaves the tensor its place in the graph, which is all that backward needs of a block's ends.
void let_go_of_memory(const at::Tensor& tensor) {
  if (tensor.defined()) tensor.set_data(at::empty({0}, tensor.options()));
}

/// Forward and backward of what one rank computes in a pass.
class Computation {
 public:
  Computation(const Engine& engine, const Stages& stages, const data::MicroBatch& batch,
              const PassTokens& tokens, const EmbeddingNoise& noise, double scale,
              model::Balance& balance)
      : engine_(engine),
        stages_(stages),
        batch_(batch),
        tokens_(tokens),
        noise_(noise),
        scale_(scale),
        balance_(balance),
        sides_(engine),
        saved_(static_cast<std::size_t>(engine.architecture.num_layers)) {}

  void run(const Event& event) {
    const bool is_embedding = event.index == stages_.embedding();
    switch (event.action) {
      case Action::forward:
        return is_embedding ? embed() : forward_block(event.index);
      case Action::forward_kept:
        return forward_kept(event.index);
      case Action::again:
        return compute_again(event.index);
      case Action::offload:
        return offload(event.index);
      case Action::drop:
        return drop(event.index);
      case Action::bring_back:
        return engine_.offload->bring_back(*saved(event.index).offloaded);
      case Action::loss:
        return run_loss();
      case Action::backward:
        return is_embedding ? embed_backward() : backward_block(event.index);
      default:
        core::check(false, "only events of stages are computed");
    }
  }

  const PendingLoss& loss() const { return loss_; }

 private:
  Saved& saved(int stage) { return saved_[static_cast<std::size_t>(stages_.layer(stage))]; }

  void embed() {
    const at::NoGradGuard no_autograd;
    x_ND_ = engine_.ops.embedding(tokens_.ids_N, engine_.model.embedding_row());
    noise_.add_to(x_ND_);
    sides_.look_up(tokens_.ids_N);
  }

  void forward_block(int stage) {
    const at::NoGradGuard no_autograd;
    saved(stage).input = x_ND_;
    SideStream::Sides sides = sides_.open(stages_.layer(stage), false);
    x_ND_ = engine_.model.block(engine_.ops, stages_.layer(stage), x_ND_, tokens_.sequence, sides);
    sides_.close(sides);
  }

  const Saved& keep(int stage, const at::Tensor& x_ND) {
    Saved& block = saved(stage);
    block.input = x_ND.detach().set_requires_grad(true);
    block.sides = sides_.open(stages_.layer(stage), true);
    block.output = engine_.model.block(engine_.ops, stages_.layer(stage), block.input,
                                       tokens_.sequence, block.sides);
    sides_.close(block.sides);
    return block;
  }

  bool is_offloaded(int stage) const {
    return engine_.blocks.is_offloaded(static_cast<int>(stages_.layer(stage)),
                                       static_cast<int>(saved_.size()));
  }

  /// Its ops keep what they need where `offload` finds it.
  void forward_kept(int stage) {
    std::optional<model::KeepIn> collecting;
    if (is_offloaded(stage)) collecting.emplace(begin_to_offload(stage).kept);
    x_ND_ = keep(stage, x_ND_).output;
  }

  shard::OffloadedBlock& begin_to_offload(int stage) {
    core::check(engine_.offload != nullptr, "somebody moves what offloaded blocks keep");
    return *(saved(stage).offloaded =
                 std::make_unique<shard::OffloadedBlock>(engine_.shards.options().device));
  }

  void offload(int stage) {
    Saved& block = saved(stage);
    // Of a block that is recomputed its input alone.
    if (!block.offloaded) block.input_away = begin_to_offload(stage).kept.add(block.input);
    engine_.offload->offload(*block.offloaded);
  }

  void drop(int stage) {
    Saved& block = saved(stage);
    engine_.offload->drop(*block.offloaded);
    if (block.input_away) {
      block.input.reset();
      return;
    }
    let_go_of_memory(block.input);
    // The same memory: autograd's graph holds both ends.
    if (stages_.layer(stage) > 0) let_go_of_memory(saved(stage - 1).output);
  }

  void arrive(int stage) {
    Saved& block = saved(stage);
    if (!block.offloaded) return;
    if (block.input_away) block.input = block.input_away->tensor();
    engine_.offload->arrive(*block.offloaded);
    block.input_away.reset();
    block.offloaded.reset();
  }

  void compute_again(int stage) {
    arrive(stage);
    keep(stage, saved(stage).input);
  }

  /// Final norm, head and loss, with the gradient of the norm's input.
  void run_loss() {
    balance_.is_counting = false;
    if (balance_.choices_E.defined() && balance_.sum_over_ranks)
      balance_.sum_over_ranks(balance_.choices_E);
    Saved norm;
    norm.input = x_ND_.detach().set_requires_grad(true);
    norm.output = engine_.model.final_norm(engine_.ops, norm.input);
    const at::Tensor normed = norm.output.detach();
    PassHead head(engine_.ops, engine_.model.head_row(), normed, tokens_.labels_N, true);
    loss_ = engine_.objective.run(head, batch_, scale_);
    core::check(head.d_x_ND().defined(), "an objective pulls back its gradient");
    d_x_ND_ = torch::autograd::grad({norm.output}, {norm.input}, {head.d_x_ND()})[0];
    x_ND_ = at::Tensor();
  }

  void backward_block(int stage) {
    arrive(stage);
    const Saved& block = saved(stage);
    d_x_ND_ = sides_.pull_back(block.input, block.output, block.sides, d_x_ND_);
    saved(stage) = {};
  }

  void embed_backward() {
    engine_.ops.embedding_backward(tokens_.ids_N, d_x_ND_, engine_.model.embedding_row());
    sides_.look_up_backward(tokens_.ids_N);
  }

  const Engine& engine_;
  const Stages& stages_;
  const data::MicroBatch& batch_;
  const PassTokens& tokens_;
  const EmbeddingNoise& noise_;
  double scale_;
  model::Balance& balance_;
  SideStream sides_;
  std::vector<Saved> saved_;  ///< by block, from its forward to its backward
  at::Tensor x_ND_;
  at::Tensor d_x_ND_;
  PendingLoss loss_;
};

/// The model before the adapter, for as long as this lives.
class AdapterSwitch {
 public:
  explicit AdapterSwitch(const Engine& engine) : ops_(engine.ops) {
    if (engine.uses_adapter) return;
    for (const model::Parameter& row : engine.shards.table().rows) {
      if (row.trainable && row.adapts < 0)
        core::fail(
            core::ErrorKind::deck,
            {"adapter", "cannot be left out of a pass", fmt::format("{} is trained too", row.name),
             "Leave adapter.modules_to_save empty, and name an adapter."});
    }
    ops_.use_adapter(false);
  }
  ~AdapterSwitch() { ops_.use_adapter(true); }
  AdapterSwitch(const AdapterSwitch&) = delete;
  AdapterSwitch& operator=(const AdapterSwitch&) = delete;

 private:
  model::Ops& ops_;
};

/// The last block's output [N, D], without autograd; then `at_head(x_ND)` with the head's units
/// open. Without ids nothing is computed.
template <typename AtHead>
void run_forward(const Engine& engine, const at::Tensor* ids_N, const model::Sequence* sequence,
                 const AtHead& at_head) {
  const at::NoGradGuard no_autograd;
  const AdapterSwitch adapter(engine);
  const Stages stages = stages_of(engine);
  at::Tensor x_ND;
  SideStream aside(engine);
  run_events(engine, stages, make_forward(stages, rules_of(engine)), ids_N != nullptr,
             [&](const Event& event) {
               if (event.index == stages.head()) return at_head(x_ND);
               if (event.index == stages.embedding()) {
                 x_ND = engine.ops.embedding(*ids_N, engine.model.embedding_row());
                 return aside.look_up(*ids_N);
               }
               const std::int64_t i_layer = stages.layer(event.index);
               SideStream::Sides sides = aside.open(i_layer, false);
               x_ND = engine.model.block(engine.ops, i_layer, x_ND, *sequence, sides);
               aside.close(sides);
             });
}

}  // namespace

PassResult PendingPass::wait() {
  PassResult result;
  static_cast<LossSum&>(result) = loss.wait();
  if (!balance) return result;
  balance->wait();
  result.balance = *balance->host().const_data_ptr<double>();
  return result;
}

PassResult forward_backward(const Engine& engine, const std::optional<data::MicroBatch>& batch,
                            const Scale& scale, Pass pass) {
  return start_forward_backward(engine, batch, scale, pass).wait();
}

PendingPass start_forward_backward(const Engine& engine, const std::optional<data::MicroBatch>& own,
                                   const Scale& scale, Pass pass, const UpdateUnit& update) {
  const Stages stages = stages_of(engine);
  const std::optional<data::MicroBatch>& batch = computed_of(engine, own);
  std::optional<PassTokens> tokens = prepare(engine, batch);
  const DropoutOfPass dropout(engine, batch);
  const EmbeddingNoise noise(engine, batch);
  model::Balance balance;
  if (own && scale.balance != 0) {
    balance = make_balance(engine, *batch, scale.balance);
    tokens->sequence.balance = &balance;
  }
  std::optional<Computation> computation;
  if (tokens) computation.emplace(engine, stages, *batch, *tokens, noise, scale.loss, balance);
  schedule::Rules rules = rules_of(engine);
  rules.updates_in_backward = static_cast<bool>(update);
  run_events(
      engine, stages, make_pass(stages, rules, pass), computation.has_value(),
      [&](const Event& event) { computation->run(event); }, update);
  PendingPass pending{.loss = computation ? computation->loss() : PendingLoss()};
  if (balance.sum.defined())
    pending.balance.emplace(balance.sum, shard::HostCopy::Contents::started);
  return pending;
}

std::vector<int> first_units(const Engine& engine) {
  return schedule::first_units(stages_of(engine), rules_of(engine));
}

void end_passes(const Engine& engine) {
  const Stages stages = stages_of(engine);
  run_events(engine, stages, make_end(stages, rules_of(engine)), false, [](const Event&) {});
}

LossSum forward(const Engine& engine, const std::optional<data::MicroBatch>& own) {
  const std::optional<data::MicroBatch>& batch = computed_of(engine, own);
  const std::optional<PassTokens> tokens = prepare(engine, batch);
  PendingLoss loss;
  run_forward(engine, tokens ? &tokens->ids_N : nullptr, tokens ? &tokens->sequence : nullptr,
              [&](const at::Tensor& x_ND) {
                const at::Tensor normed = engine.model.final_norm(engine.ops, x_ND);
                PassHead head(engine.ops, engine.model.head_row(), normed, tokens->labels_N, false);
                loss = engine.objective.run(head, *batch, 1.0);
              });
  return loss.wait();
}

model::LabelScores label_scores(const Engine& engine, const std::optional<data::MicroBatch>& own) {
  const std::optional<data::MicroBatch>& batch = computed_of(engine, own);
  const std::optional<PassTokens> tokens = prepare(engine, batch);
  model::LabelScores scores;
  run_forward(engine, tokens ? &tokens->ids_N : nullptr, tokens ? &tokens->sequence : nullptr,
              [&](const at::Tensor& x_ND) {
                const at::Tensor normed = engine.model.final_norm(engine.ops, x_ND);
                scores = engine.ops.label_scores(normed, tokens->labels_N, engine.model.head_row());
              });
  return scores;
}

at::Tensor logits(const Engine& engine, const at::Tensor& ids_N, const model::Sequence& sequence,
                  Positions positions) {
  at::Tensor logits;
  run_forward(engine, &ids_N, &sequence, [&](at::Tensor x_ND) {
    x_ND = engine.ops.all_tokens(x_ND);
    if (positions == Positions::last) x_ND = x_ND.narrow(0, x_ND.size(0) - 1, 1);
    logits = engine.ops.logits(engine.model.final_norm(engine.ops, x_ND), engine.model.head_row());
  });
  return logits;
}

at::Tensor last_logits(const Engine& engine, const std::optional<NewTokens>& tokens) {
  // What a text becomes does not depend on which others are there.
  std::optional<model::FewRows> few_rows;
  if (tokens) {
    std::vector<std::int64_t> lengths;
    for (const model::Stretch& stretch : tokens->sequence.stretches)
      lengths.push_back(stretch.length);
    few_rows.emplace(std::move(lengths));
  }
  at::Tensor logits;
  run_forward(engine, tokens ? &tokens->ids_N : nullptr, tokens ? &tokens->sequence : nullptr,
              [&](at::Tensor x_ND) {
                std::vector<std::int64_t> last;
                for (const model::Stretch& stretch : tokens->sequence.stretches)
                  last.push_back(stretch.begin + stretch.length - 1);
                x_ND = engine.ops.all_tokens(x_ND).index_select(
                    0, model::upload(at::tensor(at::ArrayRef<std::int64_t>(last), at::kLong),
                                     x_ND.device()));
                // Of the last tokens alone, whatever they end.
                const model::FewRows of_last;
                logits = engine.ops.logits(engine.model.final_norm(engine.ops, x_ND),
                                           engine.model.head_row());
              });
  return logits;
}

}  // namespace finetune::train
