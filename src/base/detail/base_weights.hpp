#pragma once
// SPDX-License-Identifier: Apache-2.0
// One tensor of a base at a time, by one process: quantised, or as the numbers that its 4 bits
// mean. For exports; a run has `load_frozen`, which gives identical bits.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/detail/quantise.hpp"
#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// A tensor in NF4.
struct Nf4Tensor {
  std::vector<std::uint8_t> codes;
  std::vector<float> maxima;               ///< not nested
  std::vector<std::uint8_t> maxima_codes;  ///< nested, as what follows
  std::vector<float> nested_maxima;
  float offset = 0;
};

/// Memory: the result and a few MiB. Throws: ErrorKind::input naming a row whose values are not
/// finite; what `values` throws.
Nf4Tensor quantise(const model::Parameter& row, const ReadValues& values);

/// A row of the base as fp32, whole: as in the files, or what the bits mean that a run has of it.
std::vector<float> base_weight(const weights::ModelFiles& files, const model::Parameter& row);

class Mxfp4Reader;
class TransposedReader;

/// Reads values of rows that are no packed planes in memory, however the files have them. Runs of a
/// row follow each other: what is read on the way is kept until another row is asked for. Copies
/// share it; one thread at a time.
class RowReader {
 public:
  /// `files` outlives it.
  explicit RowReader(const weights::ModelFiles& files);

  /// Elements [first, ...) of the row, fp32. Throws: what ModelFiles::read throws.
  void operator()(const model::Parameter& row, std::int64_t first, std::span<float> target) const;

 private:
  const weights::ModelFiles* files_;
  std::shared_ptr<Mxfp4Reader> mxfp4_;
  std::shared_ptr<TransposedReader> transposed_;
};

/// The values of a row that is not packed in the files.
ReadValues values_in(const weights::ModelFiles& files, const model::Parameter& row);

}  // namespace finetune::base
