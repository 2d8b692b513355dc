// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/own_tokens.hpp"

#include <utility>

#include "core/error.hpp"
#include "shard/started.hpp"

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

/// The first rows of what arrives.
class ArrivalOfRows : public model::Arrival {
 public:
  ArrivalOfRows(Started started, at::Tensor target, std::int64_t rows)
      : started_(std::move(started)), target_(std::move(target)), rows_(rows) {}

  at::Tensor wait() override {
    started_.wait();
    return std::exchange(target_, at::Tensor()).narrow(0, 0, rows_);
  }

 private:
  Started started_;
  at::Tensor target_;
  std::int64_t rows_;
};

}  // namespace

std::unique_ptr<model::Arrival> GroupTravel::gather(const at::Tensor& own_nD) const {
  core::check(own_nD.size(0) == tokens_.count(), "a rank has its own tokens of the pass");
  const at::Tensor own = padded(own_nD, tokens_.a_rank());
  const at::Tensor all = at::empty({own.size(0) * tokens_.ranks, own.size(1)}, own.options());
  Started started(group_, {own, all}, [&] {
    return group_.all_gather(dtype_of(own), own.data_ptr(), all.data_ptr(), own.numel());
  });
  return std::make_unique<ArrivalOfRows>(std::move(started), all, tokens_.num_tokens);
}

std::unique_ptr<model::Arrival> GroupTravel::scatter(const at::Tensor& terms_ND) const {
  core::check(terms_ND.size(0) == tokens_.num_tokens, "terms are of all tokens of the pass");
  const at::Tensor terms = padded(terms_ND, tokens_.a_rank() * tokens_.ranks);
  const at::Tensor own = at::empty({tokens_.a_rank(), terms.size(1)}, terms.options());
  Started started(group_, {terms, own}, [&] {
    return group_.reduce_scatter(dtype_of(own), terms.data_ptr(), own.data_ptr(), own.numel());
  });
  return std::make_unique<ArrivalOfRows>(std::move(started), own, tokens_.count());
}

at::Tensor GroupTravel::sum(const at::Tensor& terms) const {
  const at::Tensor sum = terms.clone(at::MemoryFormat::Contiguous);
  Started(group_, {sum}, [&] {
    return group_.all_reduce(dtype_of(sum), sum.data_ptr(), sum.numel());
  }).wait();
  return sum;
}

}  // namespace finetune::shard
