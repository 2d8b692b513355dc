// SPDX-License-Identifier: Apache-2.0
#include "model/expert_dispatch.hpp"

#include <numeric>

#include "model/upload.hpp"

namespace finetune::model {
namespace {

class AllRows final : public ExpertRoute {
 public:
  AllRows(IndexRange held, const at::Tensor& ends) : ExpertRoute(held, RowCounts(ends)) {}

  at::Tensor there(const at::Tensor& rows) const override { return rows; }
  at::Tensor back(const at::Tensor& rows) const override { return rows; }
};

/// Rows [first, first + count) of `all`.
class OwnRows final : public ExpertRoute {
 public:
  OwnRows(IndexRange held, RowCounts counts, std::int64_t first, std::int64_t all)
      : ExpertRoute(held, std::move(counts)), first_(first), all_(all) {
    const std::vector<std::int64_t>& own = this->counts().on_host();
    count_ = std::accumulate(own.begin(), own.end(), std::int64_t{0});
  }

  at::Tensor there(const at::Tensor& rows) const override { return rows.narrow(0, first_, count_); }
  at::Tensor back(const at::Tensor& rows) const override {
    std::vector<std::int64_t> shape = rows.sizes().vec();
    shape.front() = all_;
    at::Tensor whole = at::zeros(shape, rows.options());
    whole.narrow(0, first_, count_).copy_(rows);
    return whole;
  }

 private:
  std::int64_t first_, count_, all_;
};

}  // namespace

const std::vector<std::int64_t>& RowCounts::on_host() const {
  if (!counts_) {
    const at::Tensor ends = ends_.to(at::kCPU);
    counts_.emplace(static_cast<std::size_t>(ends.numel()));
    const auto* end = ends.const_data_ptr<std::int64_t>();
    std::adjacent_difference(end, end + ends.numel(), counts_->begin());
    ends_.reset();
  }
  return *counts_;
}

const at::Tensor& RowCounts::ends() const {
  if (int32_ends_.defined()) return int32_ends_;
  if (ends_.defined()) {
    int32_ends_ = ends_.to(at::kInt);
  } else {
    std::vector<std::int32_t> ends(counts_->size());
    std::partial_sum(counts_->begin(), counts_->end(), ends.begin());
    int32_ends_ = upload(at::tensor(ends, at::kInt), device_);
  }
  return int32_ends_;
}

IndexRange held_of(std::int64_t num, ExpertTensors tensors, const PartPlace& place) {
  return tensors == ExpertTensors::fused ? held_fused_experts(num, place)
                                         : held_experts(num, place);
}

std::shared_ptr<const ExpertRoute> HeldExperts::route(const at::Tensor& ends,
                                                      ExpertTensors tensors) const {
  const IndexRange held = held_of(ends.numel(), tensors, place_);
  if (held.count() == ends.numel()) return std::make_shared<AllRows>(held, ends);
  const RowCounts all(ends);
  const std::vector<std::int64_t>& counts = all.on_host();
  const auto begin = counts.begin() + held.first, end = counts.begin() + held.last;
  return std::make_shared<OwnRows>(held, RowCounts({begin, end}, ends.device()),
                                   std::accumulate(counts.begin(), begin, std::int64_t{0}),
                                   std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

}  // namespace finetune::model
