#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the queries of a rank get at the keys and values of others: they are fetched, or they travel
// round a ring.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/group.hpp"
#include "model/context.hpp"
#include "model/context_attention.hpp"
#include "plan/layout/settings.hpp"

namespace finetune::shard {

/// What backward has from forward.
struct AttendedContext {
  const at::Tensor& qkv;  ///< rotated, [N, (H + 2 Hkv) K]
  model::ContextOutput output;
};

/// The attention of all layers of a pass that see equally far. Both functions are collective on cp
/// and throw what it throws.
class ContextWay {
 public:
  virtual ~ContextWay() = default;

  /// Of a rotated qkv [N, (H + 2 Hkv) K], which may have no tokens.
  virtual model::ContextOutput attend(const at::Tensor& qkv, const model::AttentionShape& shape,
                                      model::Path path) const = 0;
  /// The gradient of qkv.
  virtual at::Tensor attend_backward(const at::Tensor& d_out_NF, const AttendedContext& attended,
                                     const model::AttentionShape& shape,
                                     model::Path path) const = 0;
};

/// Whether keys and values travel round; else they are fetched.
///
/// Windows are fetched: only neighbours have something to send. Otherwise AUTO lets them travel,
/// behind the computation, if the rank that sees most would fetch at least
/// model::ring_from_bytes per layer, which a fetch waits for and has to hold at once; and if it
/// would fetch more than half of what travels, which is all there is: queries of packed samples see
/// little of it.
bool goes_round(plan::ContextMethod method, const model::Sequence& sequence,
                const model::AttentionShape& shape, std::int64_t element_bytes);

/// `cp` outlives it; the sequence is not looked at again.
std::unique_ptr<ContextWay> make_way(plan::ContextMethod method, const model::Sequence& sequence,
                                     const model::AttentionShape& shape, std::int64_t element_bytes,
                                     comm::Group& cp, at::Device device);

}  // namespace finetune::shard
