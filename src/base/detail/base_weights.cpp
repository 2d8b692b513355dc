// SPDX-License-Identifier: Apache-2.0
#include "base/detail/base_weights.hpp"

#include <ATen/ATen.h>

#include <memory>

#include "base/detail/transposed_files.hpp"
#include "base/detail/unpacked_values.hpp"
#include "base/fp8_files.hpp"
#include "base/initial_weights.hpp"
#include "base/mxfp4_files.hpp"
#include "base/packed_files.hpp"
#include "kernels/nf4.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

using model::Packing;
using Plane = std::vector<std::byte>;

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

std::int64_t pieces(std::int64_t count, std::int64_t of) {
  return (count + of - 1) / of;
}

std::vector<float> dequantise(const Nf4Tensor& tensor, std::int64_t count) {
  std::vector<float> values(size(count));
  kernels::nf4_dequantize<float>({.codes = tensor.codes,
                                  .absmax = tensor.maxima,
                                  .absmax_codes = tensor.maxima_codes,
                                  .nested_absmax = tensor.nested_maxima,
                                  .offset = tensor.offset,
                                  .out = values});
  return values;
}

std::vector<float> unpack(const weights::ModelFiles& files, const model::Parameter& row) {
  std::vector<Plane> planes;
  for (const model::Plane& plane : model::planes(row, core::DType::f32)) {
    planes.emplace_back(size(plane.size_bytes()));
    read_plane(files, row, static_cast<int>(planes.size()) - 1, 0, planes.back());
  }
  return numbers_of_planes(row, planes);
}

std::vector<float> rounded_to_fp8(const weights::ModelFiles& files, const model::Parameter& row) {
  std::vector<float> values(size(row.count()));
  const at::Tensor whole = at::from_blob(values.data(), row.shape, at::kFloat);
  for_each_quantised(
      row, values_in(files, row), [&](std::int64_t first, const model::Quantised& rows) {
        whole.narrow(0, first, rows.values.size(0)).copy_(model::dequantised(rows, at::kFloat));
      });
  return values;
}

}  // namespace

Nf4Tensor quantise(const model::Parameter& row, const ReadValues& read_values) {
  const std::int64_t count = row.count();
  Nf4Tensor tensor;
  tensor.codes.resize(size(pieces(count, 2)));
  tensor.maxima.resize(size(pieces(count, kernels::nf4_block)));
  quantise_run(row, 0, count, read_values, tensor.codes, tensor.maxima);
  if (!row.packing.nests) return tensor;
  tensor.offset = kernels::nested_offset(tensor.maxima);
  tensor.maxima_codes.resize(tensor.maxima.size());
  tensor.nested_maxima.resize(size(pieces(std::ssize(tensor.maxima), kernels::nested_block)));
  kernels::nested_quantize(tensor.maxima, tensor.offset, tensor.maxima_codes, tensor.nested_maxima);
  tensor.maxima.clear();
  return tensor;
}

RowReader::RowReader(const weights::ModelFiles& files)
    : files_(&files),
      mxfp4_(std::make_shared<Mxfp4Reader>(files)),
      transposed_(std::make_shared<TransposedReader>(files)) {}

void RowReader::operator()(const model::Parameter& row, std::int64_t first,
                           std::span<float> target) const {
  if (is_fp8_in(*files_, row)) return read_fp8_values(*files_, row, first, target);
  if (is_mxfp4_in(*files_, row)) return mxfp4_->read(row, first, target);
  if (!row.of_files.is_dense()) return read_unpacked(*files_, row, first, target);
  if (row.is_by_inputs) return transposed_->read(row, first, target);
  files_->read(
      tensor_slice(
          row, {.row = 0, .tensor_offset = first, .shard_offset = 0, .count = std::ssize(target)}),
      std::as_writable_bytes(target));
}

ReadValues values_in(const weights::ModelFiles& files, const model::Parameter& row) {
  return [&row, read = RowReader(files)](std::int64_t first, std::span<float> target) {
    read(row, first, target);
  };
}

std::vector<float> base_weight(const weights::ModelFiles& files, const model::Parameter& row) {
  const bool says_itself =  // what values_in reads
      row.packing.kind == Packing::Kind::fp8 || row.packing.kind == Packing::Kind::mxfp4;
  if (row.packing.in_files && !says_itself) return unpack(files, row);
  if (row.packing.is_operand()) return rounded_to_fp8(files, row);
  if (row.packing.kind == Packing::Kind::nf4)
    return dequantise(quantise(row, values_in(files, row)), row.count());
  std::vector<float> values(size(row.count()));
  values_in(files, row)(0, values);
  return values;
}

}  // namespace finetune::base
