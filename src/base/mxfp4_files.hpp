#pragma once
// SPDX-License-Identifier: Apache-2.0
// Experts that a model's files hold in MXFP4: of a tensor NAME [E, in, out] its codes NAME_blocks
// and exponents NAME_scales, as gpt-oss was published.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/expected.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// Whether the files have the row's tensor in MXFP4, whatever config.json says.
bool is_mxfp4_in(const weights::ModelFiles& files, const model::Parameter& row);

/// Both tensors.
void add_expected_mxfp4(const weights::ModelFiles& files, const model::Parameter& row,
                        std::vector<weights::ExpectedTensor>& expected);

/// Elements [first, ...) of a plane (model::planes) of a row that is packed like this.
/// Throws: ErrorKind::input naming what is missing, of another shape or an exponent that gives no
/// finite numbers.
void read_mxfp4_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                      std::int64_t first, std::span<std::byte> target);

/// Reads such rows as numbers. Files have the inputs of an output next to each other, a row has the
/// outputs of an input: an expert is read as a whole, and kept for whoever wants more of it. One
/// thread at a time.
class Mxfp4Reader {
 public:
  /// `files` outlive this.
  explicit Mxfp4Reader(const weights::ModelFiles& files);
  ~Mxfp4Reader();
  Mxfp4Reader(const Mxfp4Reader&) = delete;
  Mxfp4Reader& operator=(const Mxfp4Reader&) = delete;

  /// Elements [first, ...) of a row, which is a logical tensor. Throws: as above.
  void read(const model::Parameter& row, std::int64_t first, std::span<float> target);

 private:
  struct Expert;
  const weights::ModelFiles& files_;
  std::unique_ptr<Expert> expert_;
};

}  // namespace finetune::base
