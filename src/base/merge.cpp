// SPDX-License-Identifier: Apache-2.0
#include "base/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/detail/base_weights.hpp"
#include "core/error.hpp"
#include "kernels/one_thread.hpp"
#include "model/adapter_math.hpp"

namespace finetune::base {
namespace {

double ratio(double squares, double of) {
  return of > 0 ? std::sqrt(squares / of) : 0;
}

at::Tensor view(std::vector<float>& values, const std::vector<std::int64_t>& shape) {
  return at::from_blob(values.data(), shape, at::kFloat);
}

}  // namespace

double rounding_part(const MergeReport& report) {
  return ratio(report.error_squares, report.added_squares);
}

std::string rounding_to_string(const MergeReport& report) {
  if (report.dtype == core::DType::f32) return "";
  return fmt::format(
      "rounding to {} changes each weight by at most {:.2g}; together that is {:.3f} times what "
      "the adapter adds (--dtype float32 avoids it)",
      core::name(report.dtype), report.largest_error, rounding_part(report));
}

std::string to_string(const MergeReport& report, MergeInto into) {
  std::string text = fmt::format("merged the adapter into {} matrices", report.num_merged);
  if (!report.is_quantised) return text;
  text += fmt::format(
      "\nthe adapter was trained on quantised weights; they differ from those of the files by at "
      "most {:.2g} each; together that is {:.1f} % of the weights, and {:.1f} times what the "
      "adapter adds; ",
      report.largest_moved, 100 * ratio(report.moved_squares, report.original_squares),
      ratio(report.moved_squares, report.added_squares));
  return text + (into == MergeInto::trained
                     ? "it was merged into the quantised ones"
                     : "it was merged into those of the files, on which it was not trained");
}

Merge::Merge(const weights::ModelFiles& files, const model::ParameterTable& table,
             ReadTrained trained, std::vector<core::DType> dtypes, MergeInto into,
             at::Device device)
    : files_(files),
      table_(table),
      trained_(std::move(trained)),
      dtypes_(std::move(dtypes)),
      into_(into),
      device_(device) {}

void Merge::read(int index, std::int64_t first, std::span<float> target) {
  const model::Parameter& row = table_.row(index);
  if (row.trainable) return trained_(row, first, target);
  // Experts in MXFP4 are too large to be there as a whole.
  const bool is_read = row.packing.is_dense() || row.packing.kind == model::Packing::Kind::mxfp4;
  if (is_read && !row.adapted.exists()) {
    if (reading_ != index) read_values_ = values_in(files_, row);
    reading_ = index;
    return read_values_(first, target);
  }
  if (made_ != index) make(index);
  std::copy_n(values_.begin() + first, target.size(), target.begin());
}

void Merge::make(int index) {
  const model::Parameter& row = table_.row(index);
  model::Parameter wanted = row;
  const bool is_quantised_here = !row.packing.is_dense() && !row.packing.in_files;
  if (into_ == MergeInto::original && is_quantised_here) wanted.packing = {};
  values_ = base_weight(files_, wanted);
  made_ = index;
  if (row.adapted.exists()) {
    const std::vector<float> before = values_;
    add_adapter(row);
    note_rounding(index, before);
  }
  if (is_quantised_here) note_quantisation(row);
}

at::Tensor Merge::part_of(const model::Parameter& row, std::size_t i) {
  const int index = row.adapted.parts.at(i);
  const bool is_shared = row.adapted.together.num > 0;
  if (stage_of_parts_ != row.stage) parts_together_.clear();
  stage_of_parts_ = row.stage;
  if (const auto found = parts_together_.find(index); found != parts_together_.end())
    return found->second;
  const model::Parameter& part = table_.row(index);
  at::Tensor values = at::empty(part.shape, at::kFloat);
  trained_(part, 0, {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  values = values.to(device_);
  if (is_shared) parts_together_[index] = values;
  return values;
}

void Merge::add_adapter(const model::Parameter& row) {
  const auto trained = [&](std::size_t i) { return part_of(row, i); };
  const at::Tensor host = view(values_, row.shape);
  at::Tensor weight = host.to(device_);
  // Reading the row takes far longer than a product of the adapter's rank.
  const kernels::OneThread one;
  row.adapted.math->merge(row.adapted, trained, weight);
  if (!weight.is_same(host)) host.copy_(weight);
}

void Merge::note_rounding(int index, const std::vector<float>& before) {
  const core::DType dtype = dtypes_[static_cast<std::size_t>(index)];
  const auto sums = std::as_bytes(std::span(values_));
  std::vector<std::byte> rounded(values_.size() *
                                 static_cast<std::size_t>(core::size_bytes(dtype)));
  core::convert(core::DType::f32, sums, dtype, rounded);
  std::vector<float> written(values_.size());
  core::convert(dtype, rounded, core::DType::f32, std::as_writable_bytes(std::span(written)));
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const double error = double{written[i]} - values_[i];
    const double added = double{values_[i]} - before[i];
    report_.largest_error = std::max(report_.largest_error, std::abs(error));
    report_.error_squares += error * error;
    report_.added_squares += added * added;
  }
  if (table_.row(index).shape.size() >= 2) ++report_.num_merged;  // not of biases
  if (core::size_bytes(dtype) < core::size_bytes(report_.dtype) || dtype == core::DType::bf16)
    report_.dtype = dtype;
}

void Merge::note_quantisation(const model::Parameter& row) {
  report_.is_quantised = true;
  model::Parameter original = row;
  original.packing = {};
  const std::vector<float> of_files = base_weight(files_, original);
  const std::vector<float> quantised = base_weight(files_, row);
  for (std::size_t i = 0; i < of_files.size(); ++i) {
    const double moved = double{quantised[i]} - of_files[i];
    report_.largest_moved = std::max(report_.largest_moved, std::abs(moved));
    report_.moved_squares += moved * moved;
    report_.original_squares += double{of_files[i]} * of_files[i];
  }
}

}  // namespace finetune::base
