// SPDX-License-Identifier: Apache-2.0
#include "model/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/mxfp4.hpp"
#include "kernels/nf4.hpp"
#include "kernels/row_codes.hpp"

namespace finetune::model {
namespace {

using core::DType;

constexpr std::int64_t bits_a_word = 32;

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
  const std::int64_t codes = codes_a_word(parameter.packing);
  return {{".qweight", DType::i32, {inputs / codes, outputs}},
          {".qzeros", DType::i32, {groups, outputs / codes}},
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

std::vector<Plane> integers_planes(const Parameter& parameter) {
  const Packing& packing = parameter.packing;
  const std::int64_t outputs = parameter.shape[0], inputs = parameter.shape[1];
  const std::vector<std::int64_t> groups = {
      outputs, packing.group_size > 0 ? pieces(inputs, packing.group_size) : 1};
  const bool are_words = packing.writer == Packing::Writer::compressed_words;
  std::vector<Plane> all = {
      {are_words ? "_packed" : "", DType::u8, {outputs, inputs * packing.bits / 8}},
      {"_scale", DType::f32, groups}};
  if (packing.has_zeros) all.push_back({"_zero_point", DType::u8, groups});
  return all;
}

std::vector<Plane> nvfp4_planes(const Parameter& parameter) {
  const std::int64_t outputs = parameter.shape[0], inputs = parameter.shape[1];
  const bool is_of_modelopt = parameter.packing.writer == Packing::Writer::modelopt;
  return {{is_of_modelopt ? "" : "_packed", DType::u8, {outputs, inputs / 2}},
          {"_scale", DType::u8, {outputs, inputs / kernels::nvfp4_block}},
          {is_of_modelopt ? "_scale_2" : "_global_scale", DType::f32, {1}}};
}

std::string why_not_mxfp4(const Parameter& parameter) {
  if (parameter.shape.size() != 3) return "it is no tensor of all experts of a layer";
  if (parameter.shape[1] % kernels::mxfp4_block == 0) return "";
  return fmt::format("its {} inputs are no multiple of {} that share a scale", parameter.shape[1],
                     kernels::mxfp4_block);
}

std::string why_not_by_row(const Parameter& parameter, const Packing& packing) {
  const std::int64_t together = elements_together(packing), inputs = parameter.shape[1];
  // Groups of any size are whole words, too.
  for (const std::int64_t whole : {together, codes_a_word(packing)})
    if (inputs % whole != 0)
      return fmt::format(
          "its {} inputs are no multiple of {}", inputs,
          whole == together && (packing.group_size > 0 || packing.kind == Packing::Kind::nvfp4)
              ? fmt::format("{} that share a scale", whole)
              : fmt::format("{} codes a word", whole));
  return "";
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
    case Packing::Kind::integers:
      return integers_planes(parameter);
    case Packing::Kind::nvfp4:
      return nvfp4_planes(parameter);
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

std::int64_t codes_a_word(const Packing& packing) {
  return bits_a_word / packing.bits;
}

std::string packing_name(const Packing& packing) {
  switch (packing.kind) {
    case Packing::Kind::dense:
      break;
    case Packing::Kind::nf4:
      return "NF4";
    case Packing::Kind::gptq:
      return fmt::format("{} {}-bit", packing.writer == Packing::Writer::awq ? "AWQ" : "GPTQ",
                         packing.bits);
    case Packing::Kind::fp8:
      return "FP8";
    case Packing::Kind::mxfp4:
      return "MXFP4";
    case Packing::Kind::integers:
      return fmt::format("{}-bit integers", packing.bits);
    case Packing::Kind::nvfp4:
      return "NVFP4";
  }
  return "";
}

std::int64_t elements_together(const Packing& packing) {
  switch (packing.kind) {
    case Packing::Kind::dense:
      return 1;
    case Packing::Kind::nf4:
      return kernels::nf4_block;
    case Packing::Kind::gptq:
      return codes_a_word(packing);
    case Packing::Kind::fp8:
      return std::max<std::int64_t>(1, packing.group_size);
    case Packing::Kind::mxfp4:
      return kernels::mxfp4_block;
    case Packing::Kind::integers:
      return packing.group_size > 0 ? packing.group_size : codes_a_word(packing);
    case Packing::Kind::nvfp4:
      return kernels::nvfp4_block;
  }
  return 1;
}

std::int64_t rows_together(const Packing& packing) {
  const bool is_by_row =
      packing.kind == Packing::Kind::integers || packing.kind == Packing::Kind::nvfp4;
  return is_by_row ? 1 : elements_together(packing);
}

std::string why_not_packed(const Parameter& parameter, const Packing& packing) {
  if (packing.is_dense()) return "";
  if (parameter.count() == 0) return "it has no elements";
  if (packing.kind == Packing::Kind::nf4) return "";
  if (packing.kind == Packing::Kind::mxfp4) return why_not_mxfp4(parameter);
  if (parameter.shape.size() != 2) return "it is no matrix";
  if (rows_together(packing) != elements_together(packing))
    return why_not_by_row(parameter, packing);
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
