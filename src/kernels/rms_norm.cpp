// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {
namespace {

template <class T>
struct Forward {
  const T *x, *residual, *weight;
  T *h, *y;
  float* rstd;
  std::int64_t dim;
  float epsilon;
  float offset;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t row = first; row < last; ++row) {
      const T* input = x + row * dim;
      if (residual != nullptr) {
        add(input, residual + row * dim, h + row * dim);
        input = h + row * dim;
      }
      normalise(input, y + row * dim, rstd[row]);
    }
  }

  KOKKOS_INLINE_FUNCTION void add(const T* a, const T* b, T* sum) const {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < dim; ++j)
      sum[j] = round_to<T>(to_float(a[j]) + to_float(b[j]));
  }

  KOKKOS_INLINE_FUNCTION void normalise(const T* input, T* output, float& scale_out) const {
    const float squares = lane_sum<float>(dim, [=](std::int64_t j) {
      const float value = to_float(input[j]);
      return value * value;
    });
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(dim) + epsilon);
    scale_out = scale;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < dim; ++j) {
      const float normal = to_float(round_to<T>(to_float(input[j]) * scale));
      output[j] = round_to<T>((offset + to_float(weight[j])) * normal);
    }
  }
};

template <class T>
struct ForwardRow {
  Forward<T> by;

  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t dim = by.dim, first = row * dim;
    const T *input = by.x + first, *residual = by.residual, *weight = by.weight;
    T *h = by.h + first, *y = by.y + first;
    if (residual != nullptr) {
      residual += first;
      team.for_each(dim, [=](std::int64_t j) {
        h[j] = round_to<T>(to_float(input[j]) + to_float(residual[j]));
      });
      input = h;
    }
    const float squares = team.template sum<float>(dim, [=](std::int64_t j) {
      const float value = to_float(input[j]);
      return value * value;
    });
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(dim) + by.epsilon);
    if (team.is_first()) by.rstd[row] = scale;
    const float offset = by.offset;
    team.for_each(dim, [=](std::int64_t j) {
      const float normal = to_float(round_to<T>(to_float(input[j]) * scale));
      y[j] = round_to<T>((offset + to_float(weight[j])) * normal);
    });
  }
};

// A block of rows has its own partial gradient of the weight, so that the sum over rows is
// associated in the same way for any number of threads.
constexpr std::int64_t rows_per_block = 32;

template <class T>
struct Backward {
  const T *dy, *h, *weight, *dresidual;
  const float* rstd;
  T* dx;
  float* partial;  // [blocks, D], or null
  std::int64_t rows, dim;
  float offset;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * rows_per_block;
      const std::int64_t end = begin + rows_per_block < rows ? begin + rows_per_block : rows;
      float* sums = partial == nullptr ? nullptr : partial + block * dim;
      for (std::int64_t j = 0; sums != nullptr && j < dim; ++j)
        sums[j] = 0.0f;
      for (std::int64_t row = begin; row < end; ++row) {
        if (sums != nullptr) add_weight_gradient(row, sums);
        input_gradient(row);
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void add_weight_gradient(std::int64_t row, float* sums) const {
    const T *dy_row = dy + row * dim, *h_row = h + row * dim;
    const float scale = rstd[row];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < dim; ++j) {
      sums[j] += to_float(dy_row[j]) * (to_float(h_row[j]) * scale);
    }
  }

  KOKKOS_INLINE_FUNCTION void input_gradient(std::int64_t row) const {
    const T *dy_row = dy + row * dim, *h_row = h + row * dim, *w = weight;
    T* dx_row = dx + row * dim;
    const float scale = rstd[row], add = offset;
    const float dot = lane_sum<float>(dim, [=](std::int64_t j) {
      return to_float(dy_row[j]) * (add + to_float(w[j])) * to_float(h_row[j]);
    });
    // dx = rstd * (dy w - n mean(dy w n)) with n = h rstd.
    const float along = dot * scale * scale * scale / static_cast<float>(dim);
    if (dresidual == nullptr) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < dim; ++j) {
        dx_row[j] = round_to<T>(to_float(dy_row[j]) * (add + to_float(w[j])) * scale -
                                to_float(h_row[j]) * along);
      }
      return;
    }
    const T* residual_row = dresidual + row * dim;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < dim; ++j) {
      dx_row[j] = round_to<T>(
          (to_float(dy_row[j]) * (add + to_float(w[j])) * scale - to_float(h_row[j]) * along) +
          to_float(residual_row[j]));
    }
  }
};

/// A thread has the same columns in every row, so that the sums of a column are its own.
template <class T>
struct BackwardRows {
  Backward<T> by;

  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    const std::int64_t begin = block * rows_per_block, dim = by.dim;
    const std::int64_t end = begin + rows_per_block < by.rows ? begin + rows_per_block : by.rows;
    if (by.partial != nullptr) {
      float* sums = by.partial + block * dim;
      team.for_each(dim, [=](std::int64_t j) { sums[j] = 0.0f; });
    }
    for (std::int64_t row = begin; row < end; ++row)
      gradients(team, block, row);
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void gradients(const Team& team, std::int64_t block,
                                        std::int64_t row) const {
    const std::int64_t dim = by.dim, first = row * dim;
    const T *dy = by.dy + first, *h = by.h + first, *w = by.weight;
    const T* residual = by.dresidual == nullptr ? nullptr : by.dresidual + first;
    float* sums = by.partial == nullptr ? nullptr : by.partial + block * dim;
    T* dx = by.dx + first;
    const float scale = by.rstd[row], offset = by.offset;
    const float dot = team.template sum<float>(dim, [=](std::int64_t j) {
      return to_float(dy[j]) * (offset + to_float(w[j])) * to_float(h[j]);
    });
    const float along = dot * scale * scale * scale / static_cast<float>(dim);
    team.for_each(dim, [=](std::int64_t j) {
      const float d = to_float(dy[j]), normalised = to_float(h[j]);
      if (sums != nullptr) sums[j] += d * (normalised * scale);
      const float own = d * (offset + to_float(w[j])) * scale - normalised * along;
      dx[j] = round_to<T>(residual == nullptr ? own : own + to_float(residual[j]));
    });
  }
};

struct SumBlocks {
  const float* partial;  // [blocks, D]
  float* dweight;
  std::int64_t blocks, dim;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float* sums = partial + block * dim;
#pragma GCC ivdep
      for (std::int64_t j = first; j < last; ++j)
        dweight[j] += sums[j];
    }
  }
};

// N from `rstd`, D from `weight`; every other span must be N * D or, where allowed, empty.
template <class T>
bool fits(std::span<const T> values, std::size_t rows, std::size_t dim) {
  return values.size() == rows * dim;
}

}  // namespace

template <class T>
void rms_norm(const RmsNormForward<T>& args, const Place& place) {
  const std::size_t rows = args.rstd.size(), dim = args.weight.size();
  core::check(fits<T>(args.x, rows, dim) && fits<T>(args.y, rows, dim),
              "rms_norm: x, y are [N, D]");
  core::check(args.residual.size() == args.h.size(), "rms_norm: residual and h come together");
  core::check(args.h.empty() || fits<T>(args.h, rows, dim), "rms_norm: h is [N, D]");
  const auto D = static_cast<std::int64_t>(dim);
  const Forward<T> forward{args.x.data(),
                           args.residual.empty() ? nullptr : args.residual.data(),
                           args.weight.data(),
                           args.h.data(),
                           args.y.data(),
                           args.rstd.data(),
                           D,
                           args.epsilon,
                           args.weight_offset};
  const auto num_rows = static_cast<std::int64_t>(rows);
  launch(place, num_rows, grain_rows(D), forward, Teams<ForwardRow<T>>{num_rows, {forward}});
}

template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, const Place& place) {
  const std::size_t num_rows = args.rstd.size(), num_columns = args.weight.size();
  core::check(fits<T>(args.dy, num_rows, num_columns) && fits<T>(args.h, num_rows, num_columns) &&
                  fits<T>(args.dx, num_rows, num_columns),
              "rms_norm_backward: dy, h, dx are [N, D]");
  core::check(args.dresidual.empty() || fits<T>(args.dresidual, num_rows, num_columns),
              "rms_norm_backward: dresidual is [N, D]");
  core::check(args.dweight.empty() || args.dweight.size() == num_columns,
              "rms_norm_backward: dweight is [D]");
  const auto rows = static_cast<std::int64_t>(num_rows);
  const auto dim = static_cast<std::int64_t>(num_columns);
  const std::int64_t blocks = (rows + rows_per_block - 1) / rows_per_block;
  const bool trained = !args.dweight.empty();
  const Scratch<float> partial(trained ? blocks * dim : 0, place);
  const Backward<T> backward{args.dy.data(),
                             args.h.data(),
                             args.weight.data(),
                             args.dresidual.empty() ? nullptr : args.dresidual.data(),
                             args.rstd.data(),
                             args.dx.data(),
                             trained ? partial.data() : nullptr,
                             rows,
                             dim,
                             args.weight_offset};
  launch(place, blocks, 1, backward, Teams<BackwardRows<T>>{blocks, {backward}});
  if (!trained) return;
  launch(place, dim, grain_rows(blocks),
         SumBlocks{partial.data(), args.dweight.data(), blocks, dim});
}

template void rms_norm(const RmsNormForward<float>&, const Place&);
template void rms_norm(const RmsNormForward<bf16>&, const Place&);
template void rms_norm_backward(const RmsNormBackward<float>&, const Place&);
template void rms_norm_backward(const RmsNormBackward<bf16>&, const Place&);

}  // namespace finetune::kernels
