#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which tokens of a pass a rank has between blocks, and how they travel.

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "comm/group.hpp"
#include "model/token_travel.hpp"

namespace finetune::shard {

/// Ranks have equal numbers of tokens, but for the last of them: those whose turn comes when few
/// are left have these, or none. In collectives they send as many rows as the others, of which the
/// ones at the end are nobody's.
struct OwnTokens {
  std::int64_t num_tokens = 0;  ///< N, of the pass
  std::int64_t ranks = 1;
  std::int64_t rank = 0;

  std::int64_t a_rank() const { return (num_tokens + ranks - 1) / ranks; }
  std::int64_t first() const { return std::min(a_rank() * rank, num_tokens); }
  std::int64_t count() const { return std::min(a_rank(), num_tokens - first()); }
};

/// Over a group, whose ranks all have the same number of tokens in a pass. Bytes sent per call and
/// rank: (ranks - 1) * a_rank() rows. The gradients of gathers are scatters, and the other way
/// round. Throws: what `group` throws.
class GroupTravel : public model::TokenTravel {
 public:
  /// `group` outlives this.
  GroupTravel(comm::Group& group, std::int64_t num_tokens)
      : group_(group),
        tokens_{.num_tokens = num_tokens, .ranks = group.size(), .rank = group.rank()} {}

  const OwnTokens& tokens() const { return tokens_; }

  std::unique_ptr<model::Arrival> gather(const at::Tensor& own_nD) const override;
  std::unique_ptr<model::Arrival> scatter(const at::Tensor& terms_ND) const override;
  at::Tensor sum(const at::Tensor& terms) const override;

 private:
  comm::Group& group_;
  OwnTokens tokens_;
};

}  // namespace finetune::shard
