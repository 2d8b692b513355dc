#pragma once
// SPDX-License-Identifier: Apache-2.0
// The seam between a layer's router and whoever computes its experts: this rank, or others too.

#include <ATen/ATen.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/part.hpp"

namespace finetune::model {

/// How many rows each expert has, in their order: known to the host, or to the device alone until
/// the host asks.
class RowCounts {
 public:
  /// For rows on `device`.
  RowCounts(std::vector<std::int64_t> counts, at::Device device)
      : counts_(std::move(counts)), device_(device) {}
  /// `ends`: int64 [E], where the rows of each expert end.
  explicit RowCounts(at::Tensor ends) : ends_(std::move(ends)), device_(ends_.device()) {}

  /// The first time that what the device alone knows is asked for, a GPU's host waits: it cannot
  /// know what the layers before decide until they are computed.
  const std::vector<std::int64_t>& on_host() const;
  std::int64_t num() const { return counts_ ? std::ssize(*counts_) : ends_.numel(); }
  /// int32 [E], on the device; nobody waits.
  const at::Tensor& ends() const;

 private:
  mutable std::optional<std::vector<std::int64_t>> counts_;
  mutable at::Tensor ends_, int32_ends_;
  at::Device device_;
};

/// The way of a layer's rows, copies of tokens in the experts' order [M, ...], to the rank that
/// computes them, and back.
class ExpertRoute {
 public:
  ExpertRoute(IndexRange held, RowCounts counts) : held_(held), counts_(std::move(counts)) {}
  virtual ~ExpertRoute() = default;

  /// Experts that this rank computes.
  IndexRange held() const { return held_; }
  /// Rows of each of them.
  const RowCounts& counts() const { return counts_; }

  /// [M, ...] -> the rows of the experts held, which are in their order. Any dtype.
  virtual at::Tensor there(const at::Tensor& rows) const = 0;
  /// What was computed of them -> [M, ...]; 0 where no rank of this route has the expert.
  virtual at::Tensor back(const at::Tensor& rows) const = 0;

 private:
  IndexRange held_;
  RowCounts counts_;
};

/// Whether each expert of a layer has tensors of its own, or one tensor holds all experts.
enum class ExpertTensors { separate, fused };

class ExpertDispatch {
 public:
  virtual ~ExpertDispatch() = default;

  /// `ends`: int64 [E], of the rows of each expert.
  virtual std::shared_ptr<const ExpertRoute> route(const at::Tensor& ends,
                                                   ExpertTensors tensors) const = 0;
};

/// The experts of a layer with `num` of them that the rank at `place` holds.
IndexRange held_of(std::int64_t num, ExpertTensors tensors, const PartPlace& place);

/// Rows of experts that the rank at `place` holds; those of others are somebody else's business.
/// Where there are such, a GPU's host waits for the counts of each layer: the rows of others are to
/// have no memory.
class HeldExperts final : public ExpertDispatch {
 public:
  explicit HeldExperts(const PartPlace& place = {}) : place_(place) {}

  std::shared_ptr<const ExpertRoute> route(const at::Tensor& ends,
                                           ExpertTensors tensors) const override;

 private:
  PartPlace place_;
};

}  // namespace finetune::model
