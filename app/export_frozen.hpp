#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run left as it was in the model that it began with.

#include <optional>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "export.hpp"
#include "model/parameter_table.hpp"

namespace finetune::app {

/// Refuses another model than that beside whose frozen weights a run trained. `table`: as the run
/// kept it. Throws: ErrorKind::input.
void require_base(const ExportJob& job, const weights::ModelFiles& files,
                  const model::ParameterTable& table);

/// The tensors of a run without an adapter that train.frozen and train.trainable left out: its
/// checkpoints do not hold them.
class FrozenTensors {
 public:
  /// `files`: of the model that the run began with, if it is there; lives as long as this. Throws:
  /// ErrorKind::input if something is frozen, and it is not there or is another model.
  FrozenTensors(const ExportJob& job, const std::optional<weights::ModelFiles>& files);

  /// With the dtype that they have there.
  const std::vector<weights::TensorSpec>& specs() const { return specs_; }
  bool has(std::string_view name) const { return row_of(name) >= 0; }
  /// fp32 elements of one of them, from `first` on.
  void read(std::string_view name, std::int64_t first, std::span<float> piece) const;

 private:
  int row_of(std::string_view name) const;

  const weights::ModelFiles* files_ = nullptr;
  model::ParameterTable table_;
  std::vector<weights::TensorSpec> specs_;
};

}  // namespace finetune::app
