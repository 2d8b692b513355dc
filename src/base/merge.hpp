#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model with its adapter in its weights, a tensor at a time.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/detail/quantise.hpp"
#include "core/dtype.hpp"
#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// Which weights the adapter is added to.
enum class MergeInto {
  trained,   ///< those it was trained on: what 4 bits mean where they were in 4 bits
  original,  ///< those of the files
};

/// What merging did, over all tensors it touched. Norms are those of Frobenius.
struct [[nodiscard]] MergeReport {
  std::int64_t num_merged = 0;
  core::DType dtype = core::DType::f32;  ///< coarsest that merged weights are written in
  double largest_error = 0;              ///< of a written weight against its fp32 sum
  double error_squares = 0;              ///< of all of them
  double added_squares = 0;              ///< sum of squares that the adapter adds
  bool is_quantised = false;    ///< the adapter was trained on weights that are not the files'
  double largest_moved = 0;     ///< by quantisation
  double moved_squares = 0;     ///< of what quantisation changed
  double original_squares = 0;  ///< of what it changed them in
};

/// By how much rounding blurs the adapter: norm of all errors over the norm of what it adds.
double rounding_part(const MergeReport& report);

/// Above this, what is written is no longer what was trained.
inline constexpr double largest_rounding_part = 0.1;

/// What rounding to the written dtype does, in words; empty if it is fp32 that is written.
std::string rounding_to_string(const MergeReport& report);

/// The rest of the report in words.
std::string to_string(const MergeReport& report, MergeInto into);

class Merge {
 public:
  /// fp32 elements of a trained row.
  using ReadTrained =
      std::function<void(const model::Parameter& row, std::int64_t first, std::span<float> target)>;
  /// `table` has the adapter's rows; both live as long as the merge. `dtypes`: by row, of what is
  /// written; the report has the error of its rounding. `device` computes what the adapter adds; a
  /// GPU sums its products in another order than the CPU, which differs in the last bits. On the
  /// CPU any number of threads gives identical bits.
  Merge(const weights::ModelFiles& files, const model::ParameterTable& table, ReadTrained trained,
        std::vector<core::DType> dtypes, MergeInto into, at::Device device = at::kCPU);

  /// Elements [first, ...) of a row of the merged model; of each row from the first on, in order.
  /// Memory: three fp32 tensors of the size of the row, if it is adapted or packed.
  void read(int row, std::int64_t first, std::span<float> target);

  const MergeReport& report() const { return report_; }

 private:
  void make(int row);
  at::Tensor part_of(const model::Parameter& row, std::size_t i);
  void add_adapter(const model::Parameter& row);
  void note_quantisation(const model::Parameter& row);
  void note_rounding(int row, const std::vector<float>& before);

  const weights::ModelFiles& files_;
  const model::ParameterTable& table_;
  ReadTrained trained_;
  std::vector<core::DType> dtypes_;
  MergeInto into_;
  at::Device device_;
  MergeReport report_;
  int made_ = -1;              ///< the row in values_
  std::vector<float> values_;  ///< merged
  /// Of the experts of one layer, which have theirs together: by row, read once for all of them.
  std::map<int, at::Tensor> parts_together_;
  int stage_of_parts_ = -1;
  int reading_ = -1;        ///< the row of read_values_
  ReadValues read_values_;  ///< of what is merged with nothing
};

}  // namespace finetune::base
