// SPDX-License-Identifier: Apache-2.0
#include "train/step/detail/pass_input.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/composed_noise.hpp"
#include "model/context.hpp"
#include "model/rope.hpp"
#include "model/upload.hpp"
#include "shard/started.hpp"

namespace finetune::train {
namespace {

template <typename T>
at::Tensor to_tensor(const std::vector<T>& values, at::Device device) {
  const at::Tensor there = at::from_blob(const_cast<T*>(values.data()), {std::ssize(values)},
                                         c10::CppTypeToScalarType<T>::value);
  return device.is_cpu() ? there.clone() : model::upload(there, device);
}

std::vector<model::Stretch> stretches_of(const data::MicroBatch& batch) {
  std::vector<model::Stretch> stretches;
  std::int64_t begin = 0;
  for (const data::RowPart& stretch : batch.stretches) {
    stretches.push_back({begin, stretch.length, stretch.is_padding});
    begin += stretch.length;
  }
  return stretches;
}

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

/// How the ranks of cp share a micro-batch; null: this rank has all of it.
std::shared_ptr<const model::ContextLayout> context_of(const Engine& engine,
                                                       const data::MicroBatch& batch) {
  const auto& cp = engine.shards.groups().cp;
  if (!cp) return nullptr;
  return std::make_shared<model::ContextLayout>(batch.batch, batch.length, cp->size(), cp->rank());
}

/// Of what each token of a pass has, what this rank's tokens have.
template <typename T>
std::vector<T> own(std::vector<T> of_tokens, const model::ContextLayout* context) {
  if (context == nullptr) return of_tokens;
  std::vector<T> own;
  own.reserve(static_cast<std::size_t>(context->num_own_tokens()));
  for (const model::TokenRun& run : context->runs(context->rank()))
    own.insert(own.end(), of_tokens.begin() + run.first, of_tokens.begin() + run.end());
  return own;
}

}  // namespace

const std::optional<data::MicroBatch>& computed_of(const Engine& engine,
                                                   const std::optional<data::MicroBatch>& own) {
  const auto& ep = engine.shards.groups().ep;
  if (own || !ep || ep->size() == 1) return own;
  // Any tokens will do: without labels no gradient comes back from the head, and what this rank
  // adds to every sum is 0.
  constexpr auto length = static_cast<std::size_t>(data::length_step);
  static const std::optional<data::MicroBatch> untrained =
      data::MicroBatch{.batch = 1,
                       .length = data::length_step,
                       .ids = std::vector<std::int64_t>(length, 0),
                       .labels = std::vector<std::int64_t>(length, data::not_trained)};
  return untrained;
}

std::optional<PassTokens> prepare(const Engine& engine,
                                  const std::optional<data::MicroBatch>& batch) {
  if (!batch) return std::nullopt;
  const at::Device device = engine.shards.options().device;
  model::Sequence sequence =
      batch->stretches.empty()
          ? model::make_sequence(engine.architecture, batch->batch, batch->length, device)
          : model::make_sequence(engine.architecture, batch->batch, batch->length,
                                 stretches_of(*batch), device);
  const auto context = context_of(engine, *batch);
  if (context) sequence = model::part_of(std::move(sequence), context);
  return PassTokens{to_tensor(own(batch->ids, context.get()), device),
                    to_tensor(own(batch->labels, context.get()), at::kCPU), std::move(sequence)};
}

model::Balance make_balance(const Engine& engine, const data::MicroBatch& batch, double scale) {
  const at::Device device = engine.shards.options().device;
  model::Balance balance;
  // Ranks of tp have the same tokens and sum their terms of gradients: the term counts once.
  const auto& tp = engine.shards.groups().tp;
  balance.scale = tp && tp->rank() > 0 ? 0 : scale;
  balance.sum = at::zeros({}, at::TensorOptions(at::kDouble).device(device));
  std::vector<data::RowPart> stretches = batch.stretches;
  if (stretches.empty())
    stretches.assign(static_cast<std::size_t>(batch.batch), {batch.length, false});
  for (const data::RowPart& stretch : stretches)
    balance.num_samples += stretch.is_padding ? 0 : 1;
  std::vector<std::int64_t> samples;
  std::int64_t sample = 0;
  for (const data::RowPart& stretch : stretches) {
    const std::int64_t own = stretch.is_padding ? balance.num_samples : sample++;
    samples.insert(samples.end(), static_cast<std::size_t>(stretch.length), own);
  }
  const auto context = context_of(engine, batch);
  balance.sample_N = to_tensor(own(samples, context.get()), device);
  if (context)
    balance.sum_over_ranks = [cp = engine.shards.groups().cp](const at::Tensor& terms) {
      shard::Started(*cp, {terms}, [&] {
        return cp->all_reduce(core::DType::f32, terms.data_ptr(), terms.numel());
      }).wait();
    };
  if (!engine.balances_micro_batch) return balance;
  balance.choices_E =
      at::zeros({engine.architecture.experts.num}, at::TensorOptions(at::kFloat).device(device));
  const auto num_padding = std::ranges::count(samples, balance.num_samples);
  balance.num_choosing = static_cast<double>((std::ssize(samples) - num_padding) *
                                             engine.architecture.num_layers_with_experts());
  return balance;
}

DropoutOfPass::DropoutOfPass(const Engine& engine, const std::optional<data::MicroBatch>& batch)
    : ops_(engine.ops) {
  if (!batch || engine.dropout == 0) return;
  const auto context = context_of(engine, *batch);
  ops_.set_dropout(model::DropoutMask{
      engine.dropout, engine.dropout_seed,
      to_tensor(own(token_numbers(*batch), context.get()), engine.shards.options().device)});
}

DropoutOfPass::~DropoutOfPass() {
  ops_.set_dropout(std::nullopt);
}

namespace {

/// How far from 0 the noise of each token may be.
std::vector<float> noise_scales(const data::MicroBatch& batch, double alpha, std::int64_t dim) {
  std::vector<data::RowPart> stretches = batch.stretches;
  if (stretches.empty())
    stretches.assign(static_cast<std::size_t>(batch.batch), {batch.length, false});
  std::vector<float> scales;
  scales.reserve(batch.ids.size());
  for (const data::RowPart& stretch : stretches) {
    const double size = static_cast<double>(stretch.length) * static_cast<double>(dim);
    const double scale = stretch.is_padding ? 0 : alpha / std::sqrt(size);
    scales.insert(scales.end(), static_cast<std::size_t>(stretch.length),
                  static_cast<float>(scale));
  }
  return scales;
}

}  // namespace

EmbeddingNoise::EmbeddingNoise(const Engine& engine, const std::optional<data::MicroBatch>& batch)
    : seed_(engine.dropout_seed) {
  if (!batch || engine.neftune_alpha == 0) return;
  const at::Device device = engine.shards.options().device;
  const auto context = context_of(engine, *batch);
  numbers_N_ = to_tensor(own(token_numbers(*batch), context.get()), device);
  scales_N_ = to_tensor(
      own(noise_scales(*batch, engine.neftune_alpha, engine.architecture.d_model), context.get()),
      device);
  if (const auto& tp = engine.shards.groups().tp) {
    part_ = tp->rank();
    num_parts_ = tp->size();
  }
}

void EmbeddingNoise::add_to(at::Tensor& x_nD) const {
  if (!numbers_N_.defined() || x_nD.size(0) == 0) return;
  // Ranks of tp have equal numbers of tokens but for the last of them.
  const std::int64_t a_part = (numbers_N_.size(0) + num_parts_ - 1) / num_parts_;
  const std::int64_t first = x_nD.size(0) == numbers_N_.size(0) ? 0 : part_ * a_part;
  const at::Tensor numbers = numbers_N_.narrow(0, first, x_nD.size(0));
  const at::Tensor scales = scales_N_.narrow(0, first, x_nD.size(0));
  const auto add = [&]<typename T>() {
    kernels::add_noise(kernels::Noise<T>{
        .x = {static_cast<T*>(x_nD.data_ptr()), static_cast<std::size_t>(x_nD.numel())},
        .tokens = {numbers.const_data_ptr<std::int64_t>(),
                   static_cast<std::size_t>(numbers.size(0))},
        .scales = {scales.const_data_ptr<float>(), static_cast<std::size_t>(scales.size(0))},
        .seed = seed_});
  };
  const at::ScalarType dtype = x_nD.scalar_type();
  const bool has_kernel = x_nD.is_cpu() && x_nD.is_contiguous();
  if (has_kernel && dtype == at::kFloat)
    add.template operator()<float>();
  else if (has_kernel && dtype == at::kBFloat16)
    add.template operator()<kernels::bf16>();
  else
    kernels::composed::add_noise_(x_nD, numbers, scales, seed_);
}

}  // namespace finetune::train
