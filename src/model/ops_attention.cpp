// SPDX-License-Identifier: Apache-2.0
// The ops on fused queries, keys and values.

#include <array>

#include "model/activations.hpp"
#include "model/attention_sinks.hpp"
#include "model/detail/autograd_context.hpp"
#include "model/detail/norms.hpp"
#include "model/ops.hpp"

namespace finetune::model {
namespace {

// Tensors in the order in which the function below keeps them.
constexpr std::size_t tensors_before_pieces = 2;
constexpr std::size_t tensors_a_piece = 3;

struct Attention : torch::autograd::Function<Attention> {
  static Variable forward(AutogradContext* ctx, const Variable& qkv, const AttentionShape& shape,
                          const Sequence& sequence, const Sinks& sinks, Path path) {
    at::Tensor rotated =
        qkv;  // the linear op before saved its input, not this output: free to change
    if (shape.rotary != Rotary::none) rotate(rotated, shape, sequence, RotateBy::angle, path);
    const AttendedPass attended = attend_pass(rotated, shape, sequence, sinks, path);
    variable_list kept{rotated, attended.out};
    std::vector<std::int64_t> kernels;
    for (const Attended& piece : attended.pieces) {
      kept.insert(kept.end(), {piece.logsumexp, piece.philox_seed, piece.philox_offset});
      kernels.push_back(piece.kernel);
    }
    // Of a whole pass the kernel's own view, whose strides its backward may like.
    if (attended.pieces.size() == 1 && attended.pieces[0].out.defined())
      kept[1] = attended.pieces[0].out;
    ctx->saved_data["is_whole"] = kept[1].dim() == 4;
    keep(ctx, std::move(kept));
    ctx->saved_data["kernels"] = std::move(kernels);
    carry(ctx, "shape", shape);
    carry(ctx, "sequence", sequence);
    carry(ctx, "sinks", sinks);
    save_path(ctx, path);
    return attended.out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const AttentionShape& shape = carried<AttentionShape>(ctx, "shape");
    const Sequence& sequence = carried<Sequence>(ctx, "sequence");
    AttendedPass attended{saved[1], {}};
    const auto kernels = ctx->saved_data.at("kernels").toIntVector();
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const std::size_t first = tensors_before_pieces + tensors_a_piece * i;
      attended.pieces.push_back({ctx->saved_data.at("is_whole").toBool() ? saved[1] : at::Tensor(),
                                 saved[first], saved[first + 1], saved[first + 2], kernels[i]});
    }
    at::Tensor d_qkv = attend_pass_backward(d[0], saved[0], shape, sequence, attended,
                                            carried<Sinks>(ctx, "sinks"), saved_path(ctx));
    if (shape.rotary != Rotary::none)
      rotate(d_qkv, shape, sequence, RotateBy::minus_angle, saved_path(ctx));
    return {d_qkv, {}, {}, {}, {}};
  }
};

/// Norms on their way to their backward pass.
struct CarriedHeadNorms {
  Weights* weights;
  HeadNorms norms;
};

/// Norm of query heads and of key heads, and of value heads where they have one, each as one list
/// of vectors: of a head's channels, or of as many as their weights have.
struct HeadNormFunction : torch::autograd::Function<HeadNormFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& qkv, const AttentionShape& shape,
                          const CarriedHeadNorms& of, Path path) {
    const std::int64_t tokens = qkv.size(0);
    variable_list saved, joined;
    for (const Part& part : parts(of.norms, shape)) {
      const Normed normed =
          norm_forward(*of.weights, part.norm, vectors(qkv, part, *of.weights, shape), {}, path);
      saved.insert(saved.end(), {normed.h, normed.statistics});
      joined.push_back(normed.y.view({tokens, part.num_heads * shape.head_size}));
    }
    if (!of.norms.of_values) joined.push_back(values(qkv, shape));
    keep(ctx, std::move(saved));
    carry(ctx, "norms", of);
    carry(ctx, "shape", shape);
    save_path(ctx, path);
    return at::cat(joined, 1);
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const AttentionShape& shape = carried<AttentionShape>(ctx, "shape");
    const CarriedHeadNorms& of = carried<CarriedHeadNorms>(ctx, "norms");
    const at::Tensor d_qkv = d[0].contiguous();
    variable_list joined;
    std::size_t i = 0;
    for (const Part& part : parts(of.norms, shape)) {
      const at::Tensor dy = vectors(d_qkv, part, *of.weights, shape);
      joined.push_back(norm_backward(*of.weights, part.norm, {saved[2 * i], {}, saved[2 * i + 1]},
                                     dy, {}, saved_path(ctx))
                           .view({d_qkv.size(0), part.num_heads * shape.head_size}));
      ++i;
    }
    if (!of.norms.of_values) joined.push_back(values(d_qkv, shape));
    return {at::cat(joined, 1), {}, {}, {}};
  }

 private:
  struct Part {
    std::int64_t first_head, num_heads;
    Norm norm;
  };

  static std::vector<Part> parts(const HeadNorms& norms, const AttentionShape& shape) {
    std::vector<Part> all = {{0, shape.num_heads, norms.of_queries},
                             {shape.num_heads, shape.num_kv_heads, norms.of_keys}};
    Norm weightless = norms.of_keys;
    weightless.rows = {};
    if (norms.of_values)
      all.push_back({shape.num_heads + shape.num_kv_heads, shape.num_kv_heads, weightless});
    // Keys of another layer are normed there.
    std::erase_if(all, [](const Part& part) { return part.num_heads == 0; });
    return all;
  }

  /// Some heads of qkv [N, C] as [N heads K / size, size].
  static at::Tensor vectors(const at::Tensor& qkv, const Part& part, const Weights& weights,
                            const AttentionShape& shape) {
    const int row = part.norm.rows.weight;
    const std::int64_t size = row >= 0 ? weights.weight({row, 1}).numel() : shape.head_size;
    return qkv.narrow(1, part.first_head * shape.head_size, part.num_heads * shape.head_size)
        .reshape({-1, size})
        .contiguous();
  }

  static at::Tensor values(const at::Tensor& qkv, const AttentionShape& shape) {
    const std::int64_t width = shape.num_kv_heads * shape.head_size;
    return qkv.narrow(1, qkv.size(1) - width, width);
  }
};

/// Keys, and once more as values.
struct RepeatKeys : torch::autograd::Function<RepeatKeys> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const AttentionShape& shape) {
    const std::int64_t width = shape.num_kv_heads * shape.head_size;
    ctx->saved_data["width"] = width;
    return at::cat({x, x.narrow(1, x.size(1) - width, width)}, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const std::int64_t width = ctx->saved_data.at("width").toInt(), both = d[0].size(1) - width;
    at::Tensor dx = d[0].narrow(1, 0, both).clone(at::MemoryFormat::Contiguous);
    dx.narrow(1, both - width, width).add_(d[0].narrow(1, both, width));
    return {dx, {}};
  }
};

/// Each query [K] lies before its gates [K].
struct PartGates : torch::autograd::Function<PartGates> {
  static variable_list forward(AutogradContext* ctx, const Variable& x,
                               const AttentionShape& shape) {
    carry(ctx, "shape", shape);
    const std::int64_t width = shape.num_heads * shape.head_size;
    const auto [queries, gates] = halves(x, shape);
    return {
        at::cat({queries.reshape({-1, width}), x.narrow(1, 2 * width, x.size(1) - 2 * width)}, 1),
        gates.reshape({-1, width})};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const AttentionShape& shape = carried<AttentionShape>(ctx, "shape");
    const std::int64_t width = shape.num_heads * shape.head_size;
    const at::Tensor dx = at::empty({d[0].size(0), d[0].size(1) + width}, d[0].options());
    const auto [queries, gates] = halves(dx, shape);
    queries.copy_(d[0].narrow(1, 0, width).view(queries.sizes()));
    gates.copy_(d[1].reshape(gates.sizes()));
    dx.narrow(1, 2 * width, dx.size(1) - 2 * width)
        .copy_(d[0].narrow(1, width, d[0].size(1) - width));
    return {dx, {}};
  }

 private:
  /// Views [N, H, K].
  static std::pair<at::Tensor, at::Tensor> halves(const at::Tensor& x,
                                                  const AttentionShape& shape) {
    const at::Tensor both = x.narrow(1, 0, 2 * shape.num_heads * shape.head_size)
                                .view({x.size(0), shape.num_heads, 2 * shape.head_size});
    return {both.narrow(2, 0, shape.head_size), both.narrow(2, shape.head_size, shape.head_size)};
  }
};

/// Each key head's queries, key and value, and all queries first: the same numbers in another
/// order.
struct SortHeads : torch::autograd::Function<SortHeads> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const AttentionShape& shape) {
    carry(ctx, "shape", shape);
    const at::Tensor sorted = at::empty_like(x);
    for (const auto& [together, apart] : parts(x, sorted, shape))
      apart.copy_(together);
    return sorted;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const at::Tensor sorted = d[0].contiguous(), dx = at::empty_like(sorted);
    for (const auto& [together, apart] : parts(dx, sorted, carried<AttentionShape>(ctx, "shape")))
      together.copy_(apart);
    return {dx, {}};
  }

 private:
  /// Queries, keys and values [N, Hkv, heads of each, K], as they lie in `x` and in `sorted`.
  static std::array<std::pair<at::Tensor, at::Tensor>, 3> parts(const at::Tensor& x,
                                                                const at::Tensor& sorted,
                                                                const AttentionShape& shape) {
    const std::int64_t queries = shape.num_heads / shape.num_kv_heads;
    const at::Tensor heads = x.view({x.size(0), shape.num_kv_heads, queries + 2, shape.head_size});
    std::int64_t first = 0, column = 0;
    const auto part = [&](std::int64_t num) {
      const std::int64_t width = shape.num_kv_heads * num * shape.head_size;
      const at::Tensor together = heads.narrow(2, first, num);
      const at::Tensor apart = sorted.narrow(1, column, width).view(together.sizes());
      first += num;
      column += width;
      return std::pair{together, apart};
    };
    std::array all = {part(queries), part(1), part(1)};
    return all;
  }
};

/// In place in both directions, as attention does it.
struct Rotate : torch::autograd::Function<Rotate> {
  static Variable forward(AutogradContext* ctx, const Variable& qkv, const AttentionShape& shape,
                          const Sequence& sequence, Path path) {
    carry(ctx, "shape", shape);
    carry(ctx, "sequence", sequence);
    save_path(ctx, path);
    ctx->mark_dirty({qkv});
    at::Tensor rotated = qkv;
    model::rotate(rotated, shape, sequence, RotateBy::angle, path);
    return rotated;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    at::Tensor d_qkv = d[0].contiguous();
    model::rotate(d_qkv, carried<AttentionShape>(ctx, "shape"), carried<Sequence>(ctx, "sequence"),
                  RotateBy::minus_angle, saved_path(ctx));
    return {d_qkv, {}, {}, {}};
  }
};

/// Queries times a factor a token, in place in both directions: whoever made them does not need
/// them again.
struct ScaleQueries : torch::autograd::Function<ScaleQueries> {
  static Variable forward(AutogradContext* ctx, const Variable& qkv, const at::Tensor& factor_N,
                          std::int64_t width) {
    keep(ctx, {factor_N});
    ctx->saved_data["width"] = width;
    ctx->mark_dirty({qkv});
    at::Tensor scaled = qkv;
    scaled.narrow(1, 0, width).mul_(factor_N.unsqueeze(1));
    return scaled;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    at::Tensor d_qkv = d[0];
    d_qkv.narrow(1, 0, ctx->saved_data.at("width").toInt()).mul_(kept(ctx)[0].unsqueeze(1));
    return {d_qkv, {}, {}};
  }
};

}  // namespace

at::Tensor Ops::attention(const at::Tensor& qkv, const AttentionShape& shape,
                          const Sequence& sequence, std::int64_t i_layer) {
  const Sinks sinks(weights_, shape.sinks);
  if (sequence.caches.empty()) return Attention::apply(qkv, shape, sequence, sinks, path_);
  at::Tensor rotated = qkv;
  if (shape.rotary != Rotary::none) model::rotate(rotated, shape, sequence, RotateBy::angle, path_);
  return attend_cached(rotated, shape, sequence, i_layer, sinks, path_);
}

at::Tensor Ops::head_norm(const at::Tensor& qkv, const AttentionShape& shape,
                          const HeadNorms& norms) {
  return HeadNormFunction::apply(qkv, shape, CarriedHeadNorms{&weights_, norms}, path_);
}

at::Tensor Ops::repeat_keys(const at::Tensor& x, const AttentionShape& shape) {
  return RepeatKeys::apply(x, shape);
}

std::pair<at::Tensor, at::Tensor> Ops::part_gates(const at::Tensor& x,
                                                  const AttentionShape& shape) {
  auto parts = PartGates::apply(x, shape);
  return {parts[0], parts[1]};
}

at::Tensor Ops::sort_heads(const at::Tensor& x, const AttentionShape& shape) {
  return SortHeads::apply(x, shape);
}

at::Tensor Ops::rotate(const at::Tensor& qkv, const AttentionShape& shape,
                       const Sequence& sequence) {
  return Rotate::apply(qkv, shape, sequence, path_);
}

at::Tensor Ops::tune_temperature(const at::Tensor& qkv, const AttentionShape& shape,
                                 const Sequence& sequence, const Temperature& temperature) {
  const at::Tensor position =
      sequence.positions.to(at::kFloat) + static_cast<double>(sequence.first_position);
  const at::Tensor factor = ((position + temperature.first) / temperature.floor)
                                .floor_()
                                .log1p_()
                                .mul_(temperature.scale)
                                .add_(1);
  return ScaleQueries::apply(qkv, factor.to(qkv.scalar_type()), shape.num_heads * shape.head_size);
}

}  // namespace finetune::model
