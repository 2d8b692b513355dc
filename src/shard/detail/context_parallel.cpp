// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/context_parallel.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "model/activations.hpp"
#include "model/attention_sinks.hpp"
#include "model/context_attention.hpp"
#include "model/kept.hpp"

namespace finetune::shard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// What a layer's backward needs besides tensors.
struct Layer : torch::CustomClassHolder {
  Layer(model::AttentionShape shape, model::Sequence sequence,
        std::shared_ptr<const ContextWay> way, const model::Sinks& sinks, model::Path path)
      : shape(shape),
        sequence(std::move(sequence)),
        way(std::move(way)),
        sinks(sinks),
        path(path) {}

  void rotate(at::Tensor& qkv, model::RotateBy direction) const {
    if (shape.rotary != model::Rotary::none) model::rotate(qkv, shape, sequence, direction, path);
  }

  model::AttentionShape shape;
  model::Sequence sequence;
  std::shared_ptr<const ContextWay> way;
  model::Sinks sinks;
  model::Path path;
};

struct ContextAttention : torch::autograd::Function<ContextAttention> {
  static Variable forward(AutogradContext* ctx, const Variable& qkv,
                          const c10::intrusive_ptr<Layer>& layer) {
    at::Tensor rotated = qkv;  // in place, as on one rank
    layer->rotate(rotated, model::RotateBy::angle);
    const model::ContextOutput output = layer->way->attend(rotated, layer->shape, layer->path);
    model::add_sinks(layer->sinks, layer->shape, output);
    model::keep(ctx, {rotated, output.out_NF, output.logsumexp_NH});
    ctx->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return output.out_NF;
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = model::kept(ctx);
    const auto holder = ctx->saved_data.at("layer").toCapsule();
    const auto& layer = static_cast<const Layer&>(*holder);
    const at::Tensor d_out = d[0].contiguous();
    const model::ContextOutput output{saved[1], saved[2]};
    model::add_gradient_of_sinks(layer.sinks, layer.shape, d_out, output);
    at::Tensor d_qkv =
        layer.way->attend_backward(d_out, {saved[0], output}, layer.shape, layer.path);
    layer.rotate(d_qkv, model::RotateBy::minus_angle);
    return {d_qkv, {}};
  }
};

}  // namespace

const std::shared_ptr<const ContextWay>& ContextParallelOps::way(const at::Tensor& qkv,
                                                                 const model::AttentionShape& shape,
                                                                 const model::Sequence& sequence) {
  if (of_ != sequence.context) {
    ways_.clear();
    of_ = sequence.context;
  }
  auto& way = ways_[{shape.window, shape.chunk}];
  if (!way) way = make_way(method_, sequence, shape, qkv.element_size(), *cp_, qkv.device());
  return way;
}

at::Tensor ContextParallelOps::attention(const at::Tensor& qkv, const model::AttentionShape& shape,
                                         const model::Sequence& sequence, std::int64_t i_layer) {
  if (cp_ == nullptr || !sequence.context) return Ops::attention(qkv, shape, sequence, i_layer);
  return ContextAttention::apply(
      qkv, c10::make_intrusive<Layer>(shape, sequence, way(qkv, shape, sequence),
                                      model::Sinks(weights_, shape.sinks), path_));
}

}  // namespace finetune::shard
