#pragma once
// SPDX-License-Identifier: Apache-2.0
// The factor that keeps fp16 gradients away from zero and from infinity (16-mixed).

#include <cstdint>
#include <string>

#include "core/json.hpp"

namespace finetune::optim {

/// Doubles after 2,000 good steps in a row, halves when gradients overflow; always a power of two,
/// so that scaling and unscaling round nothing. The same on every rank if all ranks give it the
/// same, which they have to agree on first.
///
/// Source: Micikevicius et al. 2018 (arXiv 1710.03740); numbers of torch.amp.GradScaler.
class LossScale {
 public:
  static constexpr double initial_scale = 65536.0;
  static constexpr double max_scale = 0x1p30;  ///< gradients of zero would let it grow for ever
  static constexpr std::int64_t growth_interval = 2000;
  /// At a scale of 1, so many overflows in a row are the model's and not the scale's.
  static constexpr std::int64_t max_skipped = 20;

  LossScale() = default;

  /// What `to_json` made. Throws: ErrorKind::input naming `where` if it is something else.
  LossScale(const core::Json& state, const std::string& where);
  core::Json to_json() const;

  /// The loss is multiplied by it before the backward pass, gradients are divided by it before they
  /// are clipped.
  double scale() const { return scale_; }
  /// Steps skipped since the last one that was taken.
  std::int64_t skipped() const { return skipped_; }
  /// Steps skipped in the whole run: the optimizer has updated the weights so many times less.
  std::int64_t skipped_in_all() const { return skipped_in_all_; }

  /// The gradients were finite and the optimizer has used them.
  void step_taken();
  /// The gradients were not finite; the optimizer must not use them.
  /// Throws: ErrorKind::numbers if smaller scales have not helped.
  void step_skipped();

 private:
  double scale_ = initial_scale;
  std::int64_t good_steps_ = 0;  ///< since the scale changed last
  std::int64_t skipped_ = 0;
  std::int64_t skipped_in_all_ = 0;
};

}  // namespace finetune::optim
