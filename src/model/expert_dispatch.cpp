// SPDX-License-Identifier: Apache-2.0
#include "model/expert_dispatch.hpp"

#include <numeric>

namespace finetune::model {
namespace {

/// Rows [first, first + count) of `all`.
class OwnRows final : public ExpertRoute {
 public:
  OwnRows(IndexRange held, std::vector<std::int64_t> counts, std::int64_t first, std::int64_t all)
      : ExpertRoute(held, std::move(counts)), first_(first), all_(all) {
    count_ = std::accumulate(this->counts().begin(), this->counts().end(), std::int64_t{0});
  }

  at::Tensor there(const at::Tensor& rows) const override {
    return count_ == all_ ? rows : rows.narrow(0, first_, count_);
  }
  at::Tensor back(const at::Tensor& rows) const override {
    if (count_ == all_) return rows;
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

std::vector<std::int64_t> counts_of(const at::Tensor& ends) {
  const at::Tensor on_host = ends.to(at::kCPU);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(on_host.numel()));
  const auto* end = on_host.const_data_ptr<std::int64_t>();
  std::adjacent_difference(end, end + on_host.numel(), counts.begin());
  return counts;
}

IndexRange held_of(std::int64_t num, ExpertTensors tensors, const PartPlace& place) {
  return tensors == ExpertTensors::fused ? held_fused_experts(num, place)
                                         : held_experts(num, place);
}

std::shared_ptr<const ExpertRoute> HeldExperts::route(const at::Tensor& ends,
                                                      ExpertTensors tensors) const {
  const std::vector<std::int64_t> counts = counts_of(ends);
  const IndexRange held = held_of(std::ssize(counts), tensors, place_);
  const auto begin = counts.begin() + held.first, end = counts.begin() + held.last;
  return std::make_shared<OwnRows>(held, std::vector<std::int64_t>(begin, end),
                                   std::accumulate(counts.begin(), begin, std::int64_t{0}),
                                   std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

}  // namespace finetune::model
