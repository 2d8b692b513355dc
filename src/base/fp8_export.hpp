#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model's tensors in FP8 as compressed-tensors has them, for programs that serve models.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/detail/quantise.hpp"
#include "core/json.hpp"
#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::base {

/// What shares a scale.
enum class Fp8Scales {
  tensor,  ///< a matrix
  block,   ///< 128 x 128 of its elements; the last blocks may be smaller
};

/// The scales of a matrix [out, in], in rows of tiles: the largest magnitude divided by 448,
/// rounded to `dtype`; 1 where that is 0. Memory: 16 MiB. `read` may be asked for any elements.
/// Throws: ErrorKind::input naming an element that is not finite; what `read` throws.
std::vector<float> fp8_scales(const model::Parameter& row, Fp8Scales of, core::DType dtype,
                              const ReadValues& read);

/// Elements [first, ...) of it, whose fp32 `values` these are: divided by their scales, rounded to
/// the nearest values of e4m3, ties to even. What a rounded scale leaves beyond 448 becomes 448.
void fp8_codes(const model::Parameter& row, Fp8Scales of, std::span<const float> scales,
               std::int64_t first, std::span<const float> values, std::span<std::byte> codes);

/// The tensors of a model of which some matrices are packed. In memory are the scales.
class Fp8Export {
 public:
  /// `files` have none of them packed. Both live as long as this.
  Fp8Export(const weights::ModelFiles& files, const model::ParameterTable& table, Fp8Scales scales);

  /// What to write, in the order of the table; tensors that are not packed as in the files.
  const std::vector<weights::TensorSpec>& tensors() const { return tensors_; }

  /// Elements [first, ...) of one of them, in its dtype.
  void read(std::string_view name, std::int64_t first, std::span<std::byte> target);

  /// config.json's "quantization_config" of such a model: activations are to be quantised as they
  /// come, by token, or by 128 elements of one where scales are of blocks.
  core::Json config() const;

 private:
  struct Source {
    int row = 0;
    bool is_scales = false;
  };

  void add_packed(int row);
  const std::vector<float>& scales_of(int row);
  void read_values(int row, std::int64_t first, std::span<float> target) const;

  const weights::ModelFiles& files_;
  const model::ParameterTable& table_;
  Fp8Scales scales_;
  std::vector<weights::TensorSpec> tensors_;
  std::map<std::string, Source, std::less<>> packed_;
  std::vector<std::string> not_packed_;     ///< modules
  std::map<int, std::vector<float>> made_;  ///< scales of rows
};

}  // namespace finetune::base
