#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a frozen tensor consists of in memory: one plane of the computation's dtype, or several of a
// packed form. Every plane is split over ranks by itself.

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

struct Plane {
  std::string suffix;  ///< as Hugging Face files call it, behind `packed_name`; may be empty
  core::DType dtype = core::DType::f32;
  std::vector<std::int64_t> shape;

  std::int64_t count() const { return core::num_elements(shape); }
  std::int64_t size_bytes() const { return count() * core::size_bytes(dtype); }
};

/// Order of the planes of packed tensors.
namespace nf4_plane {
enum { codes, maxima, nested_maxima, offset };  // the last two only where maxima are nested
}
namespace gptq_plane {
enum { codes, zeros, scales, groups };
}
namespace fp8_plane {
enum { values, scales };
}
namespace mxfp4_plane {
enum { codes, scales };
}
namespace integers_plane {
enum { codes, scales, zeros };  // the last only where packing.has_zeros
}
namespace nvfp4_plane {
enum { codes, scales, factor };
}

/// What a frozen tensor that is not packed is kept in, where `compute` is computed in.
core::DType dense_dtype(const Parameter& parameter, core::DType compute);

/// The planes of a frozen tensor. nf4: codes u8 [n / 2], maxima u8 (not nested: f32) [n / 64],
/// nested maxima f32 [n / 16384], their offset f32 [1]. gptq, with c = 32 / bits codes a word:
/// codes i32 [in / c, out], zeros i32 [groups, out / c], scales f16 [groups, out], and the group of
/// each input i32 [in], as GPTQ's files have them. fp8: values u8 [out, in], scales f32 [out / rows
/// of a tile, in / columns of a tile], rounded up: the last tiles of files may be smaller. What has
/// one scale in files has it for each row. mxfp4, of experts [E, in, out]: codes u8 [E, out, in /
/// 32, 16], two each, and exponents u8 [E, out, in / 32], as in the files.
std::vector<Plane> planes(const Parameter& parameter, core::DType compute);

/// The beginning of the names of a packed tensor's planes in files: nf4 has the tensor's own name,
/// gptq that of its module.
std::string packed_name(const Parameter& parameter);

/// Codes of a word of 32 bits.
std::int64_t codes_a_word(const Packing& packing);

/// In messages and plans: "NF4", "AWQ 4-bit".
std::string packing_name(const Packing& packing);

/// Neighbouring elements that are packed together, which no part of a tensor may cut; 1: dense.
std::int64_t elements_together(const Packing& packing);

/// Of those, neighbouring rows of a matrix; the rest of them is along its rows.
std::int64_t rows_together(const Packing& packing);

/// Whether a matrix of this shape can be kept like this, else why not.
std::string why_not_packed(const Parameter& parameter, const Packing& packing);

}  // namespace finetune::model
