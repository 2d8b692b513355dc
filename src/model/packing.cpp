// SPDX-License-Identifier: Apache-2.0
#include "model/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/mxfp4.hpp"
#include "kernels/nf4.hpp"

namespace finetune::model {
namespace {

using core::DType;

constexpr std::int64_t codes_a_word = 8;

std::int64_t pieces(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

std::vector<Plane> nf4_planes(const Parameter& parameter) {
  const std::int64_t count = parameter.count();
  const std::int64_t blocks = pieces(count, kernels::nf4_block);
  std::vector<Plane> all = {{"", DType::u8, {pieces(count, 2), 1}}};
  if (!parameter.packing.nests) {
    all.push_back({".absmax", DType::f32, {blocks}});
    return all;
  }
  all.push_back({".absmax", DType::u8, {blocks}});
  all.push_back({".nested_absmax", DType::f32, {pieces(blocks, kernels::nested_block)}});
  all.push_back({".offset", DType::f32, {1}});
  return all;
}

std::vector<Plane> gptq_planes(const Parameter& parameter) {
  const std::int64_t outputs = parameter.shape[0], inputs = parameter.shape[1];
  const std::int64_t group = parameter.packing.group_size;
  // Inputs may be of any group: who has a part of them has the scales of all groups.
  const std::int64_t all_inputs = parameter.held ? parameter.held->shape[1] : inputs;
  const std::int64_t groups = group > 0 ? pieces(all_inputs, group) : 1;
  return {{".qweight", DType::i32, {inputs / codes_a_word, outputs}},
          {".qzeros", DType::i32, {groups, outputs / codes_a_word}},
          {".scales", DType::f16, {groups, outputs}},
          {".g_idx", DType::i32, {inputs}}};
}

std::vector<Plane> fp8_planes(const Parameter& parameter) {
  const std::int64_t outputs = parameter.shape[0], inputs = parameter.shape[1];
  const std::int64_t side = parameter.packing.group_size;
  const std::vector<std::int64_t> scales =
      side == 0 ? std::vector{outputs, std::int64_t{1}}
                : std::vector{pieces(outputs, side), pieces(inputs, side)};
  return {{"", DType::u8, parameter.shape}, {".scales", DType::f32, scales}};
}

/// [E, in, out] as the files have it: the codes of an output's inputs next to each other.
std::vector<Plane> mxfp4_planes(const Parameter& parameter) {
  const std::int64_t num = parameter.shape[0], inputs = parameter.shape[1];
  const std::int64_t outputs = parameter.shape[2], blocks = inputs / kernels::mxfp4_block;
  return {{"_blocks", DType::u8, {num, outputs, blocks, kernels::mxfp4_block / 2}},
          {"_scales", DType::u8, {num, outputs, blocks}}};
}

std::string why_not_mxfp4(const Parameter& parameter) {
  if (parameter.shape.size() != 3) return "it is no tensor of all experts of a layer";
  if (parameter.shape[1] % kernels::mxfp4_block == 0) return "";
  return fmt::format("its {} inputs are no multiple of {} that share a scale", parameter.shape[1],
                     kernels::mxfp4_block);
}

}  // namespace

core::DType dense_dtype(const Parameter& parameter, core::DType compute) {
  return parameter.is_constant ? DType::f32 : compute;
}

std::vector<Plane> planes(const Parameter& parameter, core::DType compute) {
  // Of an expert that another rank has there is nothing, not even the scale of its scales.
  if (parameter.count() == 0 && !parameter.packing.is_dense()) return {};
  switch (parameter.packing.kind) {
    case Packing::Kind::nf4:
      return nf4_planes(parameter);
    case Packing::Kind::gptq:
      return gptq_planes(parameter);
    case Packing::Kind::fp8:
      return fp8_planes(parameter);
    case Packing::Kind::mxfp4:
      return mxfp4_planes(parameter);
    default:
      return {{"", dense_dtype(parameter, compute), parameter.shape}};
  }
}

std::string packed_name(const Parameter& parameter) {
  constexpr std::string_view weight = ".weight";
  if (parameter.packing.kind != Packing::Kind::gptq || !parameter.name.ends_with(weight))
    return parameter.name;
  return parameter.name.substr(0, parameter.name.size() - weight.size());
}

std::int64_t elements_together(const Packing& packing) {
  switch (packing.kind) {
    case Packing::Kind::dense:
      return 1;
    case Packing::Kind::nf4:
      return kernels::nf4_block;
    case Packing::Kind::gptq:
      return codes_a_word;
    case Packing::Kind::fp8:
      return std::max<std::int64_t>(1, packing.group_size);
    case Packing::Kind::mxfp4:
      return kernels::mxfp4_block;
  }
  return 1;
}

std::string why_not_packed(const Parameter& parameter, const Packing& packing) {
  if (packing.is_dense()) return "";
  if (parameter.count() == 0) return "it has no elements";
  if (packing.kind == Packing::Kind::nf4) return "";
  if (packing.kind == Packing::Kind::mxfp4) return why_not_mxfp4(parameter);
  if (parameter.shape.size() != 2) return "it is no matrix";
  // The last blocks of files may be smaller.
  const bool has_any_size = packing.kind == Packing::Kind::fp8 && packing.in_files;
  const std::int64_t together = has_any_size ? 1 : elements_together(packing);
  for (const std::int64_t size : parameter.shape)
    if (size % together != 0)
      return packing.kind == Packing::Kind::fp8
                 ? fmt::format("{} is no multiple of {} numbers that share a scale", size, together)
                 : fmt::format("{} is no multiple of {} codes a word", size, together);
  return "";
}

}  // namespace finetune::model
