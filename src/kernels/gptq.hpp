#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights of four or eight bits in the layout of GPTQ checkpoints.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// A linear layer of I inputs and O outputs, both multiples of the codes
/// a word, whose inputs belong to G groups,
/// and where its weights go. Input i of group g = g_idx[i] has the weights
/// scales[g][o] * (code[i][o] - zero[g][o]). Source: Frantar et al. 2022 (arXiv 2210.17323), and
/// the files of AutoGPTQ and GPTQModel.
template <class T>
struct Gptq {
  std::span<const std::int32_t> qweight;  ///< [I/codes a word, O]: lowest bits first
  std::span<const std::int32_t> qzeros;   ///< [G, O/codes a word]: lowest bits first
  std::span<const f16> scales;            ///< [G, O]
  std::span<const std::int32_t> g_idx;    ///< [I], in any order, each in [0, G)
  std::int64_t inputs, outputs;           ///< I, O
  /// 1: zero - 1 is stored (checkpoint_format "gptq"), and a stored 15 (255) means 16 (256), not 0.
  /// 0: zero itself ("gptq_v2").
  std::int64_t stored_zero_offset;
  T* out;                   ///< W^T [I, O]
  std::int64_t out_stride;  ///< row i begins at out + i * out_stride; at least O
  std::int64_t bits = 4;    ///< of a code: 4 or 8, so that a word has 8 or 4 of them
};

/// The first i whose g_idx lies outside [0, groups), or -1. To be asked, on the host, when a file
/// is read.
std::int64_t first_bad_group(std::span<const std::int32_t> g_idx, std::int64_t groups);

/// T is float or bf16: the fp32 product, rounded once. Elements between the rows are left alone.
/// Throws: ErrorKind::bug if sizes do not fit or a group (on the host) is not there.
template <class T>
void gptq_dequantize(const Gptq<T>& args, const Place& place = {});

}  // namespace finetune::kernels
