// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/own_tokens.hpp"

#include <exception>
#include <utility>

#include "core/error.hpp"

namespace finetune::shard {
namespace {

core::DType dtype_of(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return core::DType::f32;
  if (x.scalar_type() == at::kBFloat16) return core::DType::bf16;
  core::check(x.scalar_type() == at::kHalf, "activations are f32, bf16 or f16");
  return core::DType::f16;
}

/// [rows, D] with `x` first and zeros behind it; `x` itself where it has as many.
at::Tensor padded(const at::Tensor& x, std::int64_t rows) {
  if (x.size(0) == rows) return x.contiguous();
  const at::Tensor all = at::empty({rows, x.size(1)}, x.options());
  all.narrow(0, 0, x.size(0)).copy_(x);
  all.narrow(0, x.size(0), rows - x.size(0)).zero_();
  return all;
}

/// A collective that was started, with the memory that it reads and writes.
class Started : public model::Arrival {
 public:
  Started(comm::Group& group, comm::Ticket ticket, at::Tensor source, at::Tensor target,
          std::int64_t rows)
      : group_(group),
        ticket_(ticket),
        source_(std::move(source)),
        target_(std::move(target)),
        rows_(rows) {}
  ~Started() override {
    // An error on the way here: the collective may still run, its memory has to outlive it.
    if (target_.defined()) new auto(std::pair(std::move(source_), std::move(target_)));
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  at::Tensor wait() override {
    group_.wait(ticket_);
    source_ = at::Tensor();
    return std::exchange(target_, at::Tensor()).narrow(0, 0, rows_);
  }

 private:
  comm::Group& group_;
  comm::Ticket ticket_;
  at::Tensor source_, target_;
  std::int64_t rows_;
};

}  // namespace

std::unique_ptr<model::Arrival> GroupTravel::gather(const at::Tensor& own_nD) const {
  core::check(own_nD.size(0) == tokens_.count(), "a rank has its own tokens of the pass");
  const at::Tensor own = padded(own_nD, tokens_.a_rank());
  const at::Tensor all = at::empty({own.size(0) * tokens_.ranks, own.size(1)}, own.options());
  const comm::Ticket ticket =
      group_.all_gather(dtype_of(own), own.data_ptr(), all.data_ptr(), own.numel());
  return std::make_unique<Started>(group_, ticket, own, all, tokens_.num_tokens);
}

std::unique_ptr<model::Arrival> GroupTravel::scatter(const at::Tensor& terms_ND) const {
  core::check(terms_ND.size(0) == tokens_.num_tokens, "terms are of all tokens of the pass");
  const at::Tensor terms = padded(terms_ND, tokens_.a_rank() * tokens_.ranks);
  const at::Tensor own = at::empty({tokens_.a_rank(), terms.size(1)}, terms.options());
  const comm::Ticket ticket =
      group_.reduce_scatter(dtype_of(own), terms.data_ptr(), own.data_ptr(), own.numel());
  return std::make_unique<Started>(group_, ticket, terms, own, tokens_.count());
}

at::Tensor GroupTravel::sum(const at::Tensor& terms) const {
  const at::Tensor sum = terms.clone(at::MemoryFormat::Contiguous);
  group_.wait(group_.all_reduce(dtype_of(sum), sum.data_ptr(), sum.numel()));
  return sum;
}

}  // namespace finetune::shard
