#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights of four bits in the layout of GPTQ checkpoints.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// A linear layer of I inputs and O outputs, both multiples of 8, whose inputs belong to G groups,
/// and where its weights go. Input i of group g = g_idx[i] has the weights
/// scales[g][o] * (code[i][o] - zero[g][o]). Source: Frantar et al. 2022 (arXiv 2210.17323), and
/// the files of AutoGPTQ and GPTQModel.
template <class T>
struct Gptq {
  std::span<const std::int32_t> qweight;  ///< [I/8, O]: eight inputs a word, lowest bits first
  std::span<const std::int32_t> qzeros;   ///< [G, O/8]: eight outputs a word, lowest bits first
  std::span<const f16> scales;            ///< [G, O]
  std::span<const std::int32_t> g_idx;    ///< [I], in any order, each in [0, G)
  std::int64_t inputs, outputs;           ///< I, O
  /// 1: zero - 1 is stored (checkpoint_format "gptq"), and a stored 15 means 16, not 0.
  /// 0: zero itself ("gptq_v2").
  std::int64_t stored_zero_offset;
  T* out;                   ///< W^T [I, O]
  std::int64_t out_stride;  ///< row i begins at out + i * out_stride; at least O
};

/// The first i whose g_idx lies outside [0, groups), or -1. To be asked, on the host, when a file
/// is read.
std::int64_t first_bad_group(std::span<const std::int32_t> g_idx, std::int64_t groups);

/// T is float or bf16: the fp32 product, rounded once. Elements between the rows are left alone.
/// Throws: ErrorKind::bug if sizes do not fit or a group (on the host) is not there.
template <class T>
void gptq_dequantize(const Gptq<T>& args, const Place& place = {});

}  // namespace finetune::kernels
