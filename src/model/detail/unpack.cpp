// SPDX-License-Identifier: Apache-2.0
#include "model/detail/unpack.hpp"

#include <algorithm>
#include <span>

#include "core/error.hpp"
#include "core/memory_use.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/gptq.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/mxfp4.hpp"
#include "kernels/nf4.hpp"
#include "kernels/row_codes.hpp"
#include "model/packing.hpp"

namespace finetune::model {
namespace {

template <typename T>
std::span<const T> values(const at::Tensor& tensor) {
  return {static_cast<const T*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// Calls f.operator()<T>() with the kernels' element type; false if they do not know it.
template <typename F>
bool with_kernel_type(const at::Tensor& target, const F& f) {
  if (!kernels::compute_on(target.device())) return false;
  if (target.scalar_type() == at::kFloat) {
    f.template operator()<float>();
  } else if (target.scalar_type() == at::kBFloat16) {
    f.template operator()<kernels::bf16>();
  } else {
    return false;
  }
  return true;
}

/// Compositions unpack to fp32 and bf16; half is made from fp32.
at::ScalarType composed_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf ? at::kFloat : dtype;
}

/// `target`, or new memory where compositions do not know its dtype.
at::Tensor in_composed_dtype(const at::Tensor& target) {
  const at::ScalarType dtype = composed_dtype(target.scalar_type());
  return dtype == target.scalar_type() ? target
                                       : at::empty_like(target, target.options().dtype(dtype));
}

/// target [out, in], contiguous.
void unpack_nf4(const MatrixPlanes& matrix, const at::Tensor& target) {
  namespace at_plane = nf4_plane;
  const bool nests = matrix.row->packing.nests;
  const at::Tensor codes = matrix.planes.at(at_plane::codes);
  const at::Tensor maxima = matrix.planes.at(at_plane::maxima);
  const at::Tensor nested = nests ? matrix.planes.at(at_plane::nested_maxima) : at::Tensor();
  const at::Tensor offset = nests ? matrix.planes.at(at_plane::offset) : at::Tensor();
  const bool is_done = with_kernel_type(target, [&]<typename T>() {
    kernels::Nf4<T> args{};
    args.codes = values<std::uint8_t>(codes);
    if (nests) {
      args.absmax_codes = values<std::uint8_t>(maxima);
      args.nested_absmax = values<float>(nested);
      args.offset_at = values<float>(offset);
    } else {
      args.absmax = values<float>(maxima);
    }
    args.out = {static_cast<T*>(target.data_ptr()), static_cast<std::size_t>(target.numel())};
    kernels::nf4_dequantize(args, kernels::place_on(target.device()));
  });
  if (is_done) return;
  const kernels::composed::Nf4Maxima all =
      nests ? kernels::composed::Nf4Maxima{{}, maxima, nested, offset}
            : kernels::composed::Nf4Maxima{maxima};
  target.view({-1}).copy_(kernels::composed::nf4_dequantize(codes, all, target.numel(),
                                                            composed_dtype(target.scalar_type())));
}

/// target_t [in, out], rows at its stride.
void unpack_gptq(const MatrixPlanes& matrix, const at::Tensor& target_t) {
  namespace at_plane = gptq_plane;
  const at::Tensor codes = matrix.planes.at(at_plane::codes);
  const at::Tensor zeros = matrix.planes.at(at_plane::zeros);
  const at::Tensor scales = matrix.planes.at(at_plane::scales);
  const at::Tensor groups = matrix.planes.at(at_plane::groups);
  const std::int64_t inputs = matrix.row->shape[1], outputs = matrix.row->shape[0];
  const int zero_offset = matrix.row->packing.zero_offset;
  const bool is_done = with_kernel_type(target_t, [&]<typename T>() {
    kernels::gptq_dequantize(kernels::Gptq<T>{.qweight = values<std::int32_t>(codes),
                                              .qzeros = values<std::int32_t>(zeros),
                                              .scales = values<kernels::f16>(scales),
                                              .g_idx = values<std::int32_t>(groups),
                                              .inputs = inputs,
                                              .outputs = outputs,
                                              .stored_zero_offset = zero_offset,
                                              .out = static_cast<T*>(target_t.data_ptr()),
                                              .out_stride = target_t.stride(0),
                                              .bits = matrix.row->packing.bits},
                             kernels::place_on(target_t.device()));
  });
  if (is_done) return;
  const std::int64_t a_word = codes_a_word(matrix.row->packing);
  const kernels::composed::GptqLayer layer{codes.view({inputs / a_word, outputs}),
                                           zeros.view({-1, outputs / a_word}),
                                           scales.view({-1, outputs}),
                                           groups,
                                           zero_offset,
                                           matrix.row->packing.bits};
  at::Tensor out = target_t;
  const at::ScalarType dtype = composed_dtype(target_t.scalar_type());
  if (dtype == target_t.scalar_type()) return kernels::composed::gptq_dequantize_(out, layer);
  at::Tensor wide = at::empty({inputs, outputs}, out.options().dtype(dtype));
  kernels::composed::gptq_dequantize_(wide, layer);
  out.copy_(wide);
}

/// Elements in fp32 next to the matrix that is unpacked: 64 MiB.
constexpr std::int64_t fp8_piece_elements = std::int64_t{1} << 24;

/// [R, C] fp32 in place: each element times the scale of its block of side x side; the last blocks
/// may be smaller. side 0: of its row.
void scale_blocks_(const at::Tensor& wide_RC, const at::Tensor& scales, std::int64_t side) {
  if (side == 0) {
    wide_RC.mul_(scales);
    return;
  }
  const std::int64_t rows = wide_RC.size(0), columns = wide_RC.size(1), whole = rows / side;
  const at::Tensor by_column = scales.unsqueeze(2)
                                   .expand({scales.size(0), scales.size(1), side})
                                   .flatten(1)
                                   .narrow(1, 0, columns);
  if (whole > 0)
    wide_RC.narrow(0, 0, whole * side)
        .view({whole, side, columns})
        .mul_(by_column.narrow(0, 0, whole).unsqueeze(1));
  if (whole * side < rows)
    wide_RC.narrow(0, whole * side, rows - whole * side).mul_(by_column.narrow(0, whole, 1));
}

/// As files have them: the fp32 product of value and scale, rounded once.
void unpack_published(const at::Tensor& values, const at::Tensor& scales, std::int64_t side,
                      at::Tensor target) {
  const std::int64_t rows = values.size(0), together = std::max<std::int64_t>(1, side);
  const std::int64_t columns = std::max<std::int64_t>(1, values.size(1));
  const std::int64_t step =
      std::max<std::int64_t>(1, fp8_piece_elements / (columns * together)) * together;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t num = std::min(step, rows - row);
    const at::Tensor wide = values.narrow(0, row, num).to(at::kFloat);
    scale_blocks_(wide, scales.narrow(0, row / together, (num + together - 1) / together), side);
    target.narrow(0, row, num).copy_(wide);
  }
}

void unpack_fp8(const MatrixPlanes& matrix, at::Tensor target) {
  namespace at_plane = fp8_plane;
  const auto& shape = matrix.row->shape;
  const std::int64_t side = matrix.row->packing.group_size;
  const at::Tensor values = matrix.planes.at(at_plane::values).view(at::kFloat8_e4m3fn).view(shape);
  const at::Tensor scales =
      matrix.planes.at(at_plane::scales).view({-1, side == 0 ? 1 : (shape[1] + side - 1) / side});
  if (!matrix.row->packing.is_operand()) return unpack_published(values, scales, side, target);
  target.copy_(dequantised({values, scales}, target.scalar_type()));
}

/// Codes and exponents of `num` experts -> [num, out, in].
at::Tensor unpack_mxfp4(const at::Tensor& codes, const at::Tensor& exponents, std::int64_t num,
                        const Parameter& row, at::ScalarType dtype) {
  const at::Tensor target =
      at::empty({num, row.shape[2], row.shape[1]}, codes.options().dtype(composed_dtype(dtype)));
  const bool is_done =
      target.is_cpu() && with_kernel_type(target, [&]<typename T>() {
        kernels::mxfp4_dequantize<T>(
            values<std::uint8_t>(codes), values<std::uint8_t>(exponents),
            {static_cast<T*>(target.data_ptr()), static_cast<std::size_t>(target.numel())});
      });
  if (!is_done) kernels::composed::mxfp4_dequantize_(target, codes, exponents);
  return target.to(dtype);
}

/// bitsandbytes keeps the largest magnitude of a row, which the code 127 stands for; 1 / 127 in
/// fp32.
constexpr float bitsandbytes_factor = 7.874015718698502e-3f;

/// target [out, in], contiguous.
void unpack_integers(const MatrixPlanes& matrix, const at::Tensor& target) {
  namespace at_plane = integers_plane;
  const Packing& packing = matrix.row->packing;
  const std::int64_t rows = target.size(0), columns = target.size(1);
  const std::int64_t group = packing.group_size > 0 ? packing.group_size : columns;
  const at::Tensor codes = matrix.planes.at(at_plane::codes);
  const at::Tensor scales = matrix.planes.at(at_plane::scales);
  const at::Tensor zeros = packing.has_zeros ? matrix.planes.at(at_plane::zeros) : at::Tensor();
  const float factor = packing.writer == Packing::Writer::bitsandbytes ? bitsandbytes_factor : 1.0f;
  const bool is_done =
      target.is_cpu() && with_kernel_type(target, [&]<typename T>() {
        kernels::integers_dequantize<T>(
            {.codes = values<std::uint8_t>(codes),
             .scales = values<float>(scales),
             .zeros =
                 zeros.defined() ? values<std::uint8_t>(zeros) : std::span<const std::uint8_t>(),
             .columns = columns,
             .group = group,
             .bits = packing.bits,
             .factor = factor},
            {static_cast<T*>(target.data_ptr()), static_cast<std::size_t>(target.numel())});
      });
  if (is_done) return;
  const at::Tensor out = in_composed_dtype(target);
  kernels::composed::integers_dequantize_(
      out, {codes.view({rows, -1}), scales.view({rows, -1}),
            zeros.defined() ? zeros.view({rows, -1}) : zeros, packing.bits, factor});
  if (!out.is_same(target)) at::Tensor(target).copy_(out);
}

/// target [out, in], contiguous.
void unpack_nvfp4(const MatrixPlanes& matrix, const at::Tensor& target) {
  namespace at_plane = nvfp4_plane;
  const at::Tensor codes = matrix.planes.at(at_plane::codes);
  const at::Tensor scales = matrix.planes.at(at_plane::scales);
  const at::Tensor factor = matrix.planes.at(at_plane::factor);
  const bool is_done =
      target.is_cpu() && with_kernel_type(target, [&]<typename T>() {
        kernels::nvfp4_dequantize<T>(
            values<std::uint8_t>(codes), values<std::uint8_t>(scales), values<float>(factor)[0],
            {static_cast<T*>(target.data_ptr()), static_cast<std::size_t>(target.numel())});
      });
  if (is_done) return;
  const at::Tensor out = in_composed_dtype(target);
  kernels::composed::nvfp4_dequantize_(out, codes, scales, factor);
  if (!out.is_same(target)) at::Tensor(target).copy_(out);
}

bool is_gptq(const MatrixPlanes& matrix) {
  return matrix.row->packing.kind == Packing::Kind::gptq;
}

}  // namespace

at::Tensor unpack(const std::vector<MatrixPlanes>& matrices, at::ScalarType dtype) {
  const core::MemoryScope scope(core::MemoryUse::gathered);
  if (matrices.front().row->packing.kind == Packing::Kind::mxfp4) {
    core::check(matrices.size() == 1, "all experts of a layer are one tensor");
    const MatrixPlanes& all = matrices.front();
    return unpack_mxfp4(all.planes.at(mxfp4_plane::codes), all.planes.at(mxfp4_plane::scales),
                        all.row->shape[0], *all.row, dtype)
        .transpose(1, 2);
  }
  // GPTQ's words go along the inputs: where all are such, the matrix comes out transposed.
  const bool is_transposed = std::ranges::all_of(matrices, is_gptq);
  std::vector<std::int64_t> shape = matrices.front().row->shape;
  shape[0] = 0;
  for (const MatrixPlanes& matrix : matrices)
    shape[0] += matrix.row->shape[0];
  const at::TensorOptions options = matrices.front().planes.front().options().dtype(dtype);
  const at::Tensor whole =
      is_transposed ? at::empty({shape[1], shape[0]}, options).t() : at::empty(shape, options);
  std::int64_t first = 0;
  for (const MatrixPlanes& matrix : matrices) {
    const at::Tensor part = whole.narrow(0, first, matrix.row->shape[0]);
    first += matrix.row->shape[0];
    if (is_transposed) {
      unpack_gptq(matrix, part.t());
    } else if (is_gptq(matrix)) {
      const at::Tensor own = at::empty({part.size(1), part.size(0)}, options);
      unpack_gptq(matrix, own);
      part.copy_(own.t());
    } else if (matrix.row->packing.is_dense()) {
      part.copy_(matrix.planes.front().view(matrix.row->shape));
    } else if (matrix.row->packing.kind == Packing::Kind::fp8) {
      unpack_fp8(matrix, part);
    } else if (matrix.row->packing.kind == Packing::Kind::integers) {
      unpack_integers(matrix, part);
    } else if (matrix.row->packing.kind == Packing::Kind::nvfp4) {
      unpack_nvfp4(matrix, part);
    } else {
      unpack_nf4(matrix, part);
    }
  }
  return whole;
}

at::Tensor unpack_expert(const MatrixPlanes& all, std::int64_t i, at::ScalarType dtype) {
  const core::MemoryScope scope(core::MemoryUse::gathered);
  const std::int64_t num = all.row->shape[0];
  const auto part = [&](int plane) {
    const at::Tensor& of_all = all.planes.at(static_cast<std::size_t>(plane));
    const std::int64_t size = of_all.numel() / num;
    return of_all.view({-1}).narrow(0, i * size, size);
  };
  return unpack_mxfp4(part(mxfp4_plane::codes), part(mxfp4_plane::scales), 1, *all.row, dtype)
      .select(0, 0);
}

}  // namespace finetune::model
