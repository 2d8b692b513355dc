// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/composed.hpp"
#include "kernels/composed_muon.hpp"
#include "kernels/gpu_kernels.hpp"
#include "optim/elements.hpp"
#include "optim/optimizer.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "optimizers/adamw/kind.hpp"
#include "optimizers/muon/kind.hpp"
#include "optimizers/muon/matrices.hpp"
#include "shard/options.hpp"

namespace finetune::optimizers::muon {
namespace {

using optim::dispatch, optim::elements, optim::set_copies;

constexpr optim::OptimizerKey momentum = {
    .name = "momentum",
    .default_value = 0.95,
    .range = {.min = 0, .below = 1},
    .sentence = "Decay of the running mean of gradients of matrices"};

plan::OptimizerFootprint footprint() {
  return {.name = "muon",
          .label = "Muon and AdamW moments",
          .format = "",
          .states = {{.kind = "exp_avg"}, {.kind = "exp_avg_sq", .is_signed = false}},
          .passes = {.composed_bytes = 48},
          .needs_matrices = true};
}

/// Keeps AdamW's moments, fp32 or bf16, of which matrices use the first alone.
class Muon : public optim::Optimizer {
 public:
  Muon(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
       const shard::ModelShards& shards, const optim::OptimizerSetup& setup)
      : Optimizer(footprint(), settings, table, shards, shard::to_aten(setup.moments), setup.path,
                  setup.seed),
        table_(table),
        adamw_(settings),
        momentum_(settings.number(momentum)) {
    for (const int unit : shards.trained_units())
      matrices_[unit] = matrices_of(shards, unit);
  }

 private:
  at::Tensor exp_avg(int unit) const { return state(unit, 0); }
  at::Tensor exp_avg_sq(int unit) const { return state(unit, 1); }

  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override {
    const std::vector<Piece> pieces = pieces_of(shards, unit, runs);
    dispatch(shards.master(unit).scalar_type(), [&]<typename Weight>() {
      dispatch(exp_avg(unit).scalar_type(), [&]<typename Moment>() {
        for (const Piece& piece : pieces)
          if (!is_matrix(table_, piece.row)) update<Weight, Moment>(shards, unit, piece, step);
      });
    });
    update_matrices(shards, unit, pieces, step);
  }
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override {
    const std::vector<Piece> pieces = pieces_of(shards, unit, runs);
    for (const Piece& piece : pieces)
      if (!is_matrix(table_, piece.row)) update_composed(shards, unit, piece, step);
    update_matrices(shards, unit, pieces, step);
  }
  bool has_gpu_kernels() const override { return true; }

  template <typename Weight, typename Moment>
  void update(shard::ModelShards& shards, int unit, const Run& run, const Step& step);
  void update_composed(shard::ModelShards& shards, int unit, const Run& run, const Step& step);
  void update_matrices(shard::ModelShards& shards, int unit, const std::vector<Piece>& pieces,
                       const Step& step);
  kernels::composed::MuonNumbers numbers_of(const Piece& piece, const Step& step,
                                            bool is_narrow) const;

  const model::ParameterTable& table_;
  adamw::Hyperparameters adamw_;
  double momentum_;
  std::map<int, std::vector<Matrix>> matrices_;  ///< by unit
};

template <typename Weight, typename Moment>
void Muon::update(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  kernels::AdamWStep<Weight, Moment> args{
      .weight = elements<Weight>(shards.master(unit), run.offset, run.count),
      .exp_avg = elements<Moment>(exp_avg(unit), run.offset, run.count),
      .exp_avg_sq = elements<Moment>(exp_avg_sq(unit), run.offset, run.count),
      .gradient = elements<const float>(step.gradient, run.offset, run.count),
      .weight_bf16 = {},
      .weight_f16 = {},
      .lr = step.lr * run.lr_ratio,
      .beta1 = adamw_.beta1,
      .beta2 = adamw_.beta2,
      .epsilon = adamw_.epsilon,
      .weight_decay = run.weight_decay,
      .step = step.number + 1,
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .rounding = rounding(step),
      .index = run.index};
  set_copies(step.copy, run.offset, run.count, args);
  kernels::adamw(args, kernels::place_on(shards.master(unit).device()));
}

void Muon::update_composed(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.narrow(0, run.offset, run.count);
  };
  at::Tensor weight = part(shards.master(unit)), m = part(exp_avg(unit)),
             v = part(exp_avg_sq(unit));
  const bool is_narrow = weight.scalar_type() == at::kBFloat16 || m.scalar_type() == at::kBFloat16;
  kernels::composed::adamw_(weight, m, v, part(step.gradient),
                            {.lr = step.lr * run.lr_ratio,
                             .beta1 = adamw_.beta1,
                             .beta2 = adamw_.beta2,
                             .epsilon = adamw_.epsilon,
                             .weight_decay = run.weight_decay,
                             .step = step.number + 1,
                             .gradient_scale = step.gradient_scale,
                             .rounding = is_narrow ? rounding(step) : std::nullopt,
                             .index = run.index});
}

kernels::composed::MuonNumbers Muon::numbers_of(const Piece& piece, const Step& step,
                                                bool is_narrow) const {
  const auto& shape = table_.row(piece.row).shape;
  const auto longest = static_cast<double>(std::max(shape.back(), shape[shape.size() - 2]));
  const double lr = step.lr * piece.lr_ratio;
  // So that weights move as much per step as by AdamW, and its rates and decay fit (Liu et al.).
  return {.lr = lr,
          .rate = 0.2 * std::sqrt(longest) * lr,
          .momentum = momentum_,
          .weight_decay = piece.weight_decay,
          .gradient_scale = step.gradient_scale,
          .rounding = is_narrow ? rounding(step) : std::nullopt,
          .index = piece.index};
}

void Muon::update_matrices(shard::ModelShards& shards, int unit, const std::vector<Piece>& pieces,
                           const Step& step) {
  const std::vector<Matrix>& matrices = matrices_.at(unit);
  if (matrices.empty()) return;
  const at::Tensor master = shards.master(unit);
  const bool is_narrow =
      master.scalar_type() == at::kBFloat16 || exp_avg(unit).scalar_type() == at::kBFloat16;
  at::Tensor directions = at::zeros({master.size(0)}, master.options().dtype(at::kFloat));
  const auto for_each = [&](const auto& f) {
    for (const Piece& piece : pieces)
      if (is_matrix(table_, piece.row)) f(piece, numbers_of(piece, step, is_narrow));
  };
  for_each([&](const Piece& piece, const auto& by) {
    at::Tensor m = exp_avg(unit).narrow(0, piece.offset, piece.count);
    directions.narrow(0, piece.offset, piece.count)
        .copy_(kernels::composed::muon_direction_(
            m, step.gradient.narrow(0, piece.offset, piece.count), by));
  });
  const at::Tensor orthogonal =
      for_whole_matrices(shards, unit, matrices, directions, kernels::composed::newton_schulz);
  for_each([&](const Piece& piece, const auto& by) {
    at::Tensor weight = master.narrow(0, piece.offset, piece.count);
    kernels::composed::muon_step_(weight, orthogonal.narrow(0, piece.offset, piece.count), by);
    if (step.copy.defined()) step.copy.narrow(0, piece.offset, piece.count).copy_(weight);
  });
}

}  // namespace

optim::Kind kind() {
  std::vector<optim::OptimizerKey> keys = adamw::keys();
  keys.push_back(momentum);
  return {
      .footprint = footprint(),
      .sentence =
          "matrices of blocks step by their gradients' running mean, made orthogonal (Jordan et "
          "al. 2024), with AdamW's learning rates and decay; embeddings, heads, norms and "
          "biases as adamw",
      .keys = keys,
      .make = [](const optim::OptimizerSettings& settings, const model::ParameterTable& table,
                 const shard::ModelShards& shards,
                 const optim::OptimizerSetup& setup) -> std::unique_ptr<optim::Optimizer> {
        return std::make_unique<Muon>(settings, table, shards, setup);
      }};
}

}  // namespace finetune::optimizers::muon
