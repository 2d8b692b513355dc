// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "kernels/composed_adafactor.hpp"
#include "kernels/composed_exact_squares.hpp"
#include "kernels/exact_squares.hpp"
#include "optim/elements.hpp"
#include "optim/optimizer.hpp"
#include "optimizers/adafactor/factored.hpp"
#include "optimizers/adafactor/kind.hpp"
#include "shard/options.hpp"

namespace finetune::optimizers::adafactor {
namespace {

namespace composed = kernels::composed;

/// Added to the mean squares of gradients.
constexpr double epsilon = 1e-30;

constexpr optim::OptimizerKey clip_threshold = {
    .name = "clip_threshold",
    .default_value = 1,
    .range = {.above = 0},
    .sentence = "Root mean square that the update of a matrix is scaled down to"};
constexpr optim::OptimizerKey decay_rate = {
    .name = "decay_rate",
    .default_value = -0.8,
    .range = {.min = -1, .below = 0},
    .sentence = "Step t forgets t^decay_rate of the mean squares"};

plan::OptimizerFootprint footprint() {
  using Of = plan::OptimizerState::Of;
  const auto factors = [](const char* kind, Of of) {
    return plan::OptimizerState{
        .kind = kind, .dtype = core::DType::f32, .is_signed = false, .of = of};
  };
  return {.name = "adafactor",
          .label = "Adafactor moments",
          .format = "rows and columns, fp32",
          .states = {factors("exp_avg_sq_row", Of::rows), factors("exp_avg_sq_col", Of::columns),
                     // Not "exp_avg_sq", of which AdamW may have others than fp32.
                     factors("exp_avg_sq_vector", Of::vectors)},
          // Read for the squares, for the size of the update, and for the update.
          .passes = {.gradients = 3, .composed_bytes = 120}};
}

/// Keeps mean squares of rows and columns, the same on each rank that shares a unit: what they
/// and the update's size are computed from are sums over these ranks, which do not depend on how
/// elements are shared out.
class Adafactor : public optim::Optimizer {
 public:
  Adafactor(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
            const shard::ModelShards& shards, const optim::OptimizerSetup& setup)
      : Optimizer(footprint(), settings, table, shards, shard::to_aten(setup.moments), setup.path,
                  setup.seed),
        clip_threshold_(settings.number(adafactor::clip_threshold)),
        decay_rate_(settings.number(adafactor::decay_rate)) {
    for (const int unit : shards.trained_units()) {
      factored_[unit] = factored_of(table, shards.map().unit(unit));
      std::vector<double> counts;
      for (const Factored& one : factored_[unit])
        counts.insert(counts.end(), static_cast<std::size_t>(one.num_matrices),
                      static_cast<double>(one.num_trained()));
      num_trained_[unit] = at::tensor(counts, at::kDouble).to(shards.master(unit).device());
    }
  }

 private:
  /// A piece of what this rank has of a matrix, or some whole ones, small enough for temporaries.
  struct Part {
    std::size_t i = 0;                                ///< of the matrices, in factored_
    std::int64_t first_matrix = 0, num_matrices = 1;  ///< among those of the unit
    composed::MatrixRun run;
    Piece piece;
  };
  /// What elements of a parameter's matrices are multiplied by.
  struct Weights {
    at::Tensor by_row, by_column;
  };

  // The same on a CPU: the squares of rows and columns have no kernel.
  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override {
    update(shards, unit, runs, step);
  }
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override {
    update(shards, unit, runs, step);
  }

  void update(shard::ModelShards& shards, int unit, const std::vector<Run>& runs, const Step& step);
  static Part part_at(const Factored& one, std::int64_t first, std::int64_t left);
  std::vector<Part> parts_of(const std::vector<Piece>& pieces, int unit) const;
  std::vector<Weights> move_factors(shard::ModelShards& shards, int unit,
                                    const std::vector<Part>& parts, const Step& step);
  at::Tensor divisors_of(shard::ModelShards& shards, int unit, const std::vector<Part>& parts,
                         const std::vector<Weights>& weights, const Step& step) const;

  at::Tensor direction_of(const Part& part, const Weights& by, const Step& step) const {
    return composed::adafactor_direction(
        step.gradient.narrow(0, part.piece.offset, part.piece.count), by.by_row, by.by_column,
        step.gradient_scale, part.run);
  }

  double clip_threshold_, decay_rate_;
  std::map<int, std::vector<Factored>> factored_;  ///< by unit
  std::map<int, at::Tensor> num_trained_;          ///< elements of each matrix, fp64
};

/// Adds up int64 `sums` over the ranks that share a unit, whose states may be offloaded.
at::Tensor sum_over_ranks(const shard::ModelShards& shards, int unit, const at::Tensor& sums) {
  const plan::UnitLayout& layout = shards.map().unit(unit);
  if (!shards.groups().gathers(layout)) return sums;
  const at::Tensor own = sums.to(shards.options().device);
  comm::Group& group = shards.groups().of(layout);
  group.wait(group.all_reduce(core::DType::i64, own.data_ptr(), own.numel()));
  return own.to(sums.device());
}

/// What of `left` elements from `first` on is updated at once: of its piece only the count is set.
Adafactor::Part Adafactor::part_at(const Factored& one, std::int64_t first, std::int64_t left) {
  const std::int64_t within = first % one.size(), most = std::min(optim::composed_elements, left);
  Part part;
  part.run = {first, one.height, one.width};
  part.first_matrix = one.first_matrix + first / one.size();
  part.piece.count = std::min(most, one.size() - within);
  if (within == 0 && most > one.size()) {
    part.num_matrices = most / one.size();
    part.piece.count = part.num_matrices * one.size();
  }
  return part;
}

std::vector<Adafactor::Part> Adafactor::parts_of(const std::vector<Piece>& pieces, int unit) const {
  const std::vector<Factored>& all = factored_.at(unit);
  std::vector<Part> parts;
  for (const Piece& piece : pieces) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Factored& one = all[i];
      if (one.row != piece.row) continue;
      const std::int64_t end = piece.tensor_offset + piece.count;
      for (std::int64_t first = piece.tensor_offset; first < end;) {
        Part& part = parts.emplace_back(part_at(one, first, end - first));
        part.i = i;
        const std::int64_t before = first - piece.tensor_offset, count = part.piece.count;
        part.piece = piece;
        part.piece.offset += before;
        part.piece.index += before;
        part.piece.tensor_offset = first;
        part.piece.count = count;
        first += count;
      }
    }
  }
  return parts;
}

std::vector<Adafactor::Weights> Adafactor::move_factors(shard::ModelShards& shards, int unit,
                                                        const std::vector<Part>& parts,
                                                        const Step& step) {
  const std::vector<Factored>& all = factored_.at(unit);
  at::Tensor rows = state(unit, 0), columns = state(unit, 1), others = state(unit, 2);
  const std::int64_t num_rows = rows.numel(), num_columns = columns.numel();
  at::Tensor sums = at::zeros({num_rows + num_columns + others.numel(), composed::num_factor_bins},
                              rows.options().dtype(at::kLong));
  const auto sums_of_rows = [&](const Factored& one) {
    const std::int64_t first = (one.is_matrix ? 0 : num_rows + num_columns) + one.row_factors;
    return sums.narrow(0, first, one.num_matrices * one.height);
  };
  const auto sums_of_columns = [&](const Factored& one) {
    return one.is_matrix
               ? sums.narrow(0, num_rows + one.column_factors, one.num_matrices * one.width)
               : at::Tensor();
  };
  for (const Part& part : parts) {
    const Factored& one = all[part.i];
    at::Tensor of_rows = sums_of_rows(one), of_columns = sums_of_columns(one);
    composed::add_factor_squares_(of_rows, of_columns,
                                  step.gradient.narrow(0, part.piece.offset, part.piece.count),
                                  step.gradient_scale, part.run);
  }
  sums = sum_over_ranks(shards, unit, sums);

  const double decay = 1 - std::pow(static_cast<double>(step.number + 1), decay_rate_);
  std::vector<Weights> weights;
  for (const Factored& one : all) {
    at::Tensor own =
        (one.is_matrix ? rows : others).narrow(0, one.row_factors, one.num_matrices * one.height);
    composed::move_factor_(own, sums_of_rows(one), one.width, decay, epsilon);
    if (!one.is_matrix) {
      weights.push_back({own.rsqrt(), {}});
      continue;
    }
    at::Tensor of_columns = columns.narrow(0, one.column_factors, one.num_matrices * one.width);
    composed::move_factor_(of_columns, sums_of_columns(one), one.num_rows, decay, epsilon);
    weights.push_back(
        {composed::row_weights(own, one.height, one.first_row, one.num_rows), of_columns.rsqrt()});
  }
  return weights;
}

/// fp32 [matrices of the unit].
at::Tensor Adafactor::divisors_of(shard::ModelShards& shards, int unit,
                                  const std::vector<Part>& parts,
                                  const std::vector<Weights>& weights, const Step& step) const {
  at::Tensor squares = at::zeros({num_trained_.at(unit).numel(), kernels::SquareBins::num_values},
                                 step.gradient.options().dtype(at::kLong));
  for (const Part& part : parts) {
    at::Tensor own = squares.narrow(0, part.first_matrix, part.num_matrices);
    composed::add_exact_squares_of_rows_(
        own, direction_of(part, weights[part.i], step).view({part.num_matrices, -1}));
  }
  return composed::clip_divisors(sum_over_ranks(shards, unit, squares), num_trained_.at(unit),
                                 clip_threshold_);
}

void Adafactor::update(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                       const Step& step) {
  const std::vector<Part> parts = parts_of(pieces_of(shards, unit, runs), unit);
  const std::vector<Weights> weights = move_factors(shards, unit, parts, step);
  const at::Tensor divisors = divisors_of(shards, unit, parts, weights, step);
  for (const Part& part : parts) {
    at::Tensor weight = shards.master(unit).narrow(0, part.piece.offset, part.piece.count);
    const bool is_narrow = weight.scalar_type() != at::kFloat;
    composed::adafactor_step_(weight, direction_of(part, weights[part.i], step),
                              divisors.narrow(0, part.first_matrix, part.num_matrices),
                              {.lr = step.lr * part.piece.lr_ratio,
                               .weight_decay = part.piece.weight_decay,
                               .rounding = is_narrow ? rounding(step) : std::nullopt,
                               .index = part.piece.index});
    if (step.copy.defined()) step.copy.narrow(0, part.piece.offset, part.piece.count).copy_(weight);
  }
}

}  // namespace

optim::Kind kind() {
  return {.footprint = footprint(),
          .sentence =
              "mean squares of rows and columns instead of moments (Shazeer & Stern 2018), as "
              "transformers computes them with a learning rate of one's own; no momentum",
          .keys = {clip_threshold, decay_rate},
          .make = [](const optim::OptimizerSettings& settings, const model::ParameterTable& table,
                     const shard::ModelShards& shards,
                     const optim::OptimizerSetup& setup) -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<Adafactor>(settings, table, shards, setup);
          }};
}

}  // namespace finetune::optimizers::adafactor
