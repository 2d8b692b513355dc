// SPDX-License-Identifier: Apache-2.0
// The experts of a layer on several ranks, each with tokens of its own, against one rank that has
// all experts and all tokens.
#include "shard/detail/expert_parallel.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/mpi_group.hpp"
#include "support/allocations.hpp"
#include "support/ranks.hpp"
#include "support/weights.hpp"
#include "unit/shard/failing_group.hpp"

namespace finetune::shard::expert_parallel_test {
namespace {

using model::ExpertRows;
using model::ExpertTensors;
using model::IndexRange;
using tests::expect_within;
using tests::normal;

constexpr std::int64_t width = 6, hidden = 5, num_experts = 5;

model::Experts experts_of(std::int64_t top_k, bool normalizes, bool scales_input) {
  return {.num = num_experts,
          .top_k = top_k,
          .d_ff = hidden,
          .normalizes = normalizes,
          .scales_input = scales_input};
}

/// The router, then gate with up and down of each expert, or of all.
struct Layer {
  ExpertTensors tensors = ExpertTensors::separate;
  std::vector<at::Tensor> weights;

  ExpertRows rows() const { return tests::expert_rows(tensors); }
  /// What a rank with experts `held` has: of others it has numbers that show.
  std::vector<at::Tensor> part(IndexRange held) const {
    std::vector<at::Tensor> own = weights;
    for (std::size_t row = 1; row < own.size(); ++row) {
      const auto expert = static_cast<std::int64_t>(row - 1) / 2;
      if (tensors == ExpertTensors::fused)
        own[row] = own[row].narrow(0, held.first, held.count()).contiguous();
      else if (expert < held.first || expert >= held.last)
        own[row] = at::full_like(own[row], std::numeric_limits<float>::quiet_NaN());
    }
    return own;
  }
};

Layer make_layer(ExpertTensors tensors, const at::Tensor& router) {
  return {tensors, tests::expert_weights(tensors, router, hidden)};
}

struct Results {
  at::Tensor y, dx;
};

Results run(model::Ops& ops, const Layer& layer, const model::Experts& experts, const at::Tensor& x,
            const at::Tensor& dy, model::Balance* balance = nullptr) {
  model::Sequence sequence;
  sequence.length = x.size(0);
  sequence.balance = balance;
  const at::Tensor leaf = x.clone().set_requires_grad(true);
  const at::Tensor y = ops.experts(leaf, {}, layer.rows(), experts, sequence);
  return {y.detach(), torch::autograd::grad({y}, {leaf}, {dy})[0]};
}

/// Tokens of each rank: those of the rank `without` are none, and 4, 5, ... of the others.
std::int64_t num_tokens(int rank, int without) {
  return rank == without ? 0 : 4 + rank;
}

struct Case {
  const char* name;
  ExpertTensors tensors;
  std::int64_t top_k;
  bool normalizes, scales_input;
};

class SharedExpertsOf : public testing::TestWithParam<Case> {
 protected:
  static int ranks() { return tests::world().size(); }
  static std::shared_ptr<comm::Group> group() {
    return std::make_shared<comm::MpiGroup>(
        tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  }

  /// All that the ranks get is what one gets of all their tokens.
  void expect_parity(const at::Tensor& router, int without, double tolerance = 1e-5) {
    const Case& c = GetParam();
    const Layer layer = make_layer(c.tensors, router);
    const model::Experts experts = experts_of(c.top_k, c.normalizes, c.scales_input);
    std::int64_t first = 0, all = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank == tests::world().rank()) first = all;
      all += num_tokens(rank, without);
    }
    const std::int64_t own = num_tokens(tests::world().rank(), without);
    const at::Tensor x = normal({all, width}, 3), dy = normal({all, width}, 4);
    tests::TinyWeights whole(layer.weights);
    model::Ops alone(whole);
    const Results expected = run(alone, layer, experts, x, dy);

    const model::PartPlace place{.ep = ranks(), .i_ep = tests::world().rank()};
    const IndexRange held = model::held_of(num_experts, c.tensors, place);
    tests::TinyWeights part(layer.part(held));
    const auto ep = group();
    for (const model::Recompute recompute : {model::Recompute::nothing, model::Recompute::cheap}) {
      part.forget_gradients();
      ExpertParallelOps ops(part, {.ep = ep.get(), .place = place}, model::Path::kernels,
                            recompute);
      const Results actual =
          run(ops, layer, experts, x.narrow(0, first, own), dy.narrow(0, first, own));
      if (own > 0) {
        expect_within(actual.y, expected.y.narrow(0, first, own), tolerance);
        expect_within(actual.dx, expected.dx.narrow(0, first, own), tolerance);
      }
      expect_gradients(layer, held, part, whole, tolerance);
      expect_router(*ep, part, whole, tolerance);
    }
  }

 private:
  static void expect_gradients(const Layer& layer, IndexRange held, const tests::TinyWeights& part,
                               const tests::TinyWeights& whole, double tolerance) {
    for (int row = 1; row < std::ssize(layer.weights); ++row) {
      if (layer.tensors == ExpertTensors::fused) {
        if (held.count() == 0 || !whole.is_written(row)) continue;
        const at::Tensor wanted = whole.gradient_of(row).narrow(0, held.first, held.count());
        if (part.is_written(row))
          expect_within(part.gradient_of(row), wanted, tolerance);
        else
          EXPECT_EQ(wanted.abs().max().item<float>(), 0) << "row " << row;
        continue;
      }
      const std::int64_t expert = (row - 1) / 2;
      const bool is_held = expert >= held.first && expert < held.last;
      EXPECT_EQ(part.is_written(row), is_held && whole.is_written(row)) << "row " << row;
      if (part.is_written(row) && whole.is_written(row))
        expect_within(part.gradient_of(row), whole.gradient_of(row), tolerance);
    }
  }

  /// Each rank has a term, of its own tokens.
  static void expect_router(comm::Group& ep, const tests::TinyWeights& part,
                            const tests::TinyWeights& whole, double tolerance) {
    const at::Tensor sum = part.gradient_of(0).clone();
    ep.wait(ep.all_reduce(core::DType::f32, sum.data_ptr(), sum.numel()));
    const at::Tensor wanted = whole.gradient_of(0);
    // Of one choice of which the weight is always 1, the router learns nothing.
    if (wanted.abs().max().item<float>() < 1e-6f)
      EXPECT_LT(sum.abs().max().item<float>(), 1e-6f);
    else
      expect_within(sum, wanted, tolerance);
  }
};

TEST_P(SharedExpertsOf, GiveWhatOneRankGives) {
  expect_parity(normal({num_experts, width}, 1), -1);
}

TEST_P(SharedExpertsOf, ServeOthersWhereARankHasNoTokens) {
  for (int without = 0; without < ranks(); ++without)
    if (ranks() > 1) expect_parity(normal({num_experts, width}, 1), without);
}

/// Every token chooses the same experts, which are one rank's, or two ranks'.
TEST_P(SharedExpertsOf, MayAllBeThoseOfOneRank) {
  for (const std::int64_t favourite : {0, 4}) {
    at::Tensor router = normal({num_experts, width}, 1) * 1e-3;
    // All features add up to the logit of a token, whose sign depends on the token: both ends.
    router.select(0, favourite).fill_(2);
    router.select(0, (favourite + 1) % num_experts).fill_(-2);
    expect_parity(router, -1, 2e-5);
  }
}

TEST_P(SharedExpertsOf, BalanceEachRanksOwnTokens) {
  const Case& c = GetParam();
  const Layer layer = make_layer(c.tensors, normal({num_experts, width}, 1));
  const model::Experts experts = experts_of(c.top_k, c.normalizes, c.scales_input);
  const std::int64_t own = num_tokens(tests::world().rank(), -1);
  const at::Tensor x = normal({own, width}, 30 + static_cast<unsigned>(tests::world().rank()));
  const auto balance_of = [&] {
    model::Balance balance;
    balance.scale = 0.3;
    balance.sample_N = at::zeros({own}, at::kLong);
    balance.num_samples = 1;
    balance.sum = at::zeros({}, at::kDouble);
    return balance;
  };
  const model::PartPlace place{.ep = ranks(), .i_ep = tests::world().rank()};
  tests::TinyWeights whole(layer.weights);
  tests::TinyWeights part(layer.part(model::held_of(num_experts, c.tensors, place)));
  const auto ep = group();
  model::Ops alone(whole);
  ExpertParallelOps ops(part, {.ep = ep.get(), .place = place});
  model::Balance expected = balance_of(), actual = balance_of();
  const at::Tensor nothing = at::zeros_like(x);
  const Results wanted = run(alone, layer, experts, x, nothing, &expected);
  const Results got = run(ops, layer, experts, x, nothing, &actual);
  EXPECT_NEAR(actual.sum.item<double>(), expected.sum.item<double>(), 1e-5);
  expect_within(got.dx, wanted.dx, 1e-5);
  expect_within(part.gradient_of(0), whole.gradient_of(0), 1e-5);
}

/// Ranks of tensor parallelism have the same tokens, and each adds what its own experts make.
TEST_P(SharedExpertsOf, WithoutExchangeAreTermsOfTheirSum) {
  const Case& c = GetParam();
  if (c.tensors == ExpertTensors::separate) GTEST_SKIP() << "each rank has a part of each expert";
  const Layer layer = make_layer(c.tensors, normal({num_experts, width}, 1));
  const model::Experts experts = experts_of(c.top_k, c.normalizes, c.scales_input);
  const at::Tensor x = normal({9, width}, 3), dy = normal({9, width}, 4);
  tests::TinyWeights whole(layer.weights);
  model::Ops alone(whole);
  const Results expected = run(alone, layer, experts, x, dy);
  const model::PartPlace place{.tp = ranks(), .i_tp = tests::world().rank()};
  tests::TinyWeights part(layer.part(model::held_of(num_experts, c.tensors, place)));
  ExpertParallelOps ops(part, {.place = place});
  const Results term = run(ops, layer, experts, x, dy);
  const auto tp = group();
  const auto summed = [&](const at::Tensor& terms) {
    const at::Tensor sum = terms.clone(at::MemoryFormat::Contiguous);
    tp->wait(tp->all_reduce(core::DType::f32, sum.data_ptr(), sum.numel()));
    return sum;
  };
  expect_within(summed(term.y), expected.y, 1e-5);
  expect_within(summed(term.dx), expected.dx, 1e-5);
}

TEST(ExpertCollectives, ThatFailLeaveTheirMemoryBehind) {
  const tests::LeftOnPurpose left_on_purpose;
  tests::FailingGroup ep(tests::world(), tests::FailingGroup::Fails::in_wait);
  const SharedExperts experts(ep, {.ep = ep.size(), .i_ep = ep.rank()});
  const at::Tensor ends = at::arange(num_experts);
  const tests::Allocations allocations;
  EXPECT_THROW(experts.route(ends, ExpertTensors::separate), core::Error);
  // How often each expert was chosen, as it was sent.
  EXPECT_GE(allocations.live_bytes(), num_experts * std::int64_t{sizeof(std::int64_t)});
}

INSTANTIATE_TEST_SUITE_P(Routings, SharedExpertsOf,
                         testing::Values(Case{"Mixtral", ExpertTensors::separate, 2, true, false},
                                         Case{"Qwen", ExpertTensors::separate, 3, false, false},
                                         Case{"Llama4", ExpertTensors::fused, 1, false, true},
                                         Case{"FusedOfTwo", ExpertTensors::fused, 2, true, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace finetune::shard::expert_parallel_test
