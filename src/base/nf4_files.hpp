#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model's tensors as bitsandbytes checkpoints have them.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/detail/base_weights.hpp"
#include "core/json.hpp"
#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::base {

/// Tensors of `table` (rows that are packed as NF4 among others) made from files that have none of
/// them packed. One tensor at a time is in memory, as codes.
class Nf4Files {
 public:
  /// Both live as long as this.
  Nf4Files(const weights::ModelFiles& files, const model::ParameterTable& table);

  /// What to write, in the order of the table; tensors that are not packed as in the files.
  const std::vector<weights::TensorSpec>& tensors() const { return tensors_; }

  /// Elements [first, ...) of one of them, in its dtype.
  void read(std::string_view name, std::int64_t first, std::span<std::byte> target);

 private:
  enum class Part { whole, codes, maxima, nested_maxima, levels, nested_levels, state };
  struct Source {
    int row = 0;  ///< -1: none, copied
    Part part = Part::whole;
  };

  void add(std::string name, core::DType dtype, std::vector<std::int64_t> shape, Source source);
  void add_packed(int row);
  std::string state_text(int row, float offset) const;
  std::span<const std::byte> bytes_of(const Source& source);
  const Nf4Tensor& quantised(int row);

  const weights::ModelFiles& files_;
  const model::ParameterTable& table_;
  std::vector<weights::TensorSpec> tensors_;
  std::map<std::string, Source, std::less<>> sources_;
  int made_ = -1;  ///< the row in tensor_
  Nf4Tensor tensor_;
  std::string state_;
};

/// config.json's "quantization_config" of such a model. `dtype`: "bfloat16" and the like.
core::Json nf4_config(bool nests, const std::string& dtype);

}  // namespace finetune::base
