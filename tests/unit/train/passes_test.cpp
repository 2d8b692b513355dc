// SPDX-License-Identifier: Apache-2.0
#include "train/step/passes.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/mpi/mpi_group.hpp"
#include "core/error.hpp"
#include "model/rope.hpp"
#include "support/mesh.hpp"
#include "support/tiny_model.hpp"
#include "train/step/detail/pass_input.hpp"

namespace finetune::train::passes_test {
namespace {

using tests::TinyKind;
using tests::TinyModel;

/// Sequence `number`: ids and labels differ from one to the next; some positions are not trained.
data::MicroBatch sequence(std::int64_t number, std::int64_t num_rows = 1) {
  data::MicroBatch batch{.batch = num_rows, .length = 5, .ids = {}, .labels = {}};
  for (std::int64_t i = 0; i < 5 * num_rows; ++i) {
    batch.ids.push_back((3 * i + 5 * number + i * i) % 11);
    batch.labels.push_back((i + number) % 3 == 0 ? -100 : (2 * i + 7 * number) % 11);
  }
  return batch;
}

struct Result {
  double loss = 0;
  tests::Elements gradients;
};

void expect_gradients(TinyModel& tiny, const tests::Elements& expected) {
  tiny.for_each_gradient([&](int row, std::int64_t i, float gradient) {
    const float wanted = expected.at({row, i});
    EXPECT_NEAR(gradient, wanted, 1e-5 * std::max(1.0f, std::abs(wanted)))
        << "row " << row << ", element " << i;
  });
}

/// All of these sequences, one a pass, on this process alone.
Result alone(TinyKind kind, const std::vector<data::MicroBatch>& batches) {
  TinyModel tiny(comm::Communicator(), kind);
  tiny.shards.reset_gradients();
  Result result;
  for (const auto& batch : batches)
    result.loss += forward_backward(tiny.engine(), batch, 0.1).loss;
  result.gradients = tiny.gradients();
  return result;
}

/// Writes down what begins together: "gr" a gather and a reduction, and a bar behind it.
class WatchedGroup : public comm::MpiGroup {
 public:
  using MpiGroup::MpiGroup;
  comm::Ticket all_gather(core::DType dtype, const void* shard, void* full,
                          std::int64_t count) override {
    log += 'g';
    return MpiGroup::all_gather(dtype, shard, full, count);
  }
  comm::Ticket exchange(comm::Exchange exchange) override {
    log += 'r';
    return MpiGroup::exchange(std::move(exchange));
  }
  void together(const std::function<void()>& f) override {
    f();
    if (!log.empty() && log.back() != '|') log += '|';
  }

  std::string log;
};

/// Embedding, two blocks and the head: each is gathered while the one before is computed, and
/// leaves together with what comes next.
TEST(PassesOfUnits, BeginTogetherWhatNoComputationParts) {
  const auto worker = std::make_shared<comm::Worker>(comm::Worker::Where::behind);
  const auto group = std::make_shared<WatchedGroup>(tests::world(), worker);
  const shard::Groups groups{
      .fsdp = group,
      .dp_replicate = std::make_shared<comm::MpiGroup>(comm::Communicator(), worker),
      .alone = plan::Alone::communicates};
  TinyModel tiny(groups, TinyModel::in_fp32());
  tiny.shards.reset_gradients();
  forward_backward(tiny.engine(), sequence(1), 0.1);
  end_passes(tiny.engine());
  EXPECT_EQ(group->log, "gg|g|g|rg|r|r|r|");
}

/// Within alpha / sqrt(L D) for each of the samples that share a row; none on padding.
TEST(NoiseOnEmbeddings, IsAsWideAsItsSampleIsShort) {
  TinyModel tiny(comm::Communicator(), TinyKind::own_head);
  Engine engine = tiny.engine();
  engine.neftune_alpha = 5;
  data::MicroBatch batch = sequence(1, 2);
  batch.stretches = {{3, false}, {2, true}, {1, false}, {4, false}};
  const std::int64_t lengths[] = {3, 3, 3, 0, 0, 1, 4, 4, 4, 4};
  const std::int64_t dim = engine.architecture.d_model;
  at::Tensor x = at::ones({10, dim}, at::kFloat);
  EmbeddingNoise(engine, batch).add_to(x);
  for (std::int64_t i = 0; i < 10; ++i) {
    const double widest = (x[i] - 1).abs().max().item<double>();
    const double bound = lengths[i] == 0 ? 0 : 5 / std::sqrt(lengths[i] * dim);
    EXPECT_LE(widest, bound * (1 + 1e-5)) << i;
    EXPECT_GE(widest, bound * 0.5) << i;
  }
  EXPECT_FALSE(at::equal(x[0] - 1, x[1] - 1)) << "tokens have noise of their own";
  at::Tensor again = at::ones({10, dim}, at::kFloat);
  EmbeddingNoise(engine, batch).add_to(again);
  EXPECT_TRUE(at::equal(again, x));
  // Another row of the run.
  batch.first_row = 17;
  at::Tensor later = at::ones({10, dim}, at::kFloat);
  EmbeddingNoise(engine, batch).add_to(later);
  EXPECT_FALSE(at::equal(later, x));
}

class Passes : public testing::TestWithParam<TinyKind> {
 protected:
  /// One pass in which this rank has `mine`; everything equals `expected` in the end.
  void expect_same(const std::optional<data::MicroBatch>& mine, const Result& expected) {
    const comm::Communicator& world = tests::world();
    TinyModel tiny(world, GetParam());
    tiny.shards.reset_gradients();
    const double loss = forward_backward(tiny.engine(), mine, 0.1).loss;
    EXPECT_NEAR(world.all_reduce(loss, comm::Reduce::sum), expected.loss, 1e-5);
    expect_gradients(tiny, expected.gradients);
  }
};

TEST_P(Passes, OfAllRanksAddUp) {
  const comm::Communicator& world = tests::world();
  std::vector<data::MicroBatch> all;
  for (std::int64_t rank = 0; rank < world.size(); ++rank)
    all.push_back(sequence(rank));
  expect_same(sequence(world.rank()), alone(GetParam(), all));
}

TEST_P(Passes, TakeRanksWithoutAMicroBatch) {
  const comm::Communicator& world = tests::world();
  const bool has_one = world.rank() == world.size() - 1;
  expect_same(has_one ? std::optional(sequence(3)) : std::nullopt,
              alone(GetParam(), {sequence(3)}));
}

TEST_P(Passes, OfNobodyGiveZeroGradients) {
  TinyModel tiny(tests::world(), GetParam());
  const LossSum sum = forward_backward(tiny.engine(), std::nullopt, 1.0);
  EXPECT_EQ(sum.loss, 0);
  EXPECT_EQ(sum.weight, 0);
  tiny.for_each_gradient([](int, std::int64_t, float gradient) { EXPECT_EQ(gradient, 0); });
}

TEST_P(Passes, OfTwoRowsAreTwoPassesOfOne) {
  const data::MicroBatch both = sequence(0, 2);
  std::vector<data::MicroBatch> rows(2, {.batch = 1, .length = 5, .ids = {}, .labels = {}});
  for (std::size_t row = 0; row < 2; ++row) {
    const auto begin = static_cast<std::ptrdiff_t>(5 * row);
    rows[row].ids = {both.ids.begin() + begin, both.ids.begin() + begin + 5};
    rows[row].labels = {both.labels.begin() + begin, both.labels.begin() + begin + 5};
  }
  const Result together = alone(GetParam(), {both});
  const Result apart = alone(GetParam(), rows);
  EXPECT_NEAR(together.loss, apart.loss, 1e-5);
  for (const auto& [place, gradient] : together.gradients)
    EXPECT_NEAR(gradient, apart.gradients.at(place), 1e-5);
}

TEST_P(Passes, LeaveEveryUnitClosed) {
  TinyModel tiny(tests::world(), GetParam());
  forward_backward(tiny.engine(), sequence(tests::world().rank()), 1.0);
  forward(tiny.engine(), sequence(0));
  for (int unit = 0; unit < tiny.shards.num_units(); ++unit)
    EXPECT_THROW(tiny.shards.close(unit), core::Error) << "unit " << unit;
}

TEST_P(Passes, ForwardHasTheLossOfForwardAndBackward) {
  TinyModel tiny(tests::world(), GetParam());
  const LossSum with = forward_backward(tiny.engine(), sequence(1), 1.0);
  const LossSum without = forward(tiny.engine(), sequence(1));
  EXPECT_NEAR(with.loss, without.loss, 1e-6 * with.loss);
  EXPECT_EQ(with.weight, without.weight);
  EXPECT_TRUE(at::equal(with.correct_N, without.correct_N));
  const LossSum nothing = forward(tiny.engine(), std::nullopt);
  EXPECT_EQ(nothing.weight, 0);
}

TEST_P(Passes, LogitsOfTheLastPositionAreTheLastOfAll) {
  TinyModel tiny(tests::world(), GetParam());
  const at::Tensor ids = at::tensor({1, 9, 4}, at::kLong);
  const model::Sequence sequence = model::make_sequence(tiny.architecture, 1, 3);
  const at::Tensor all = logits(tiny.engine(), ids, sequence, Positions::all);
  const at::Tensor last = logits(tiny.engine(), ids, sequence, Positions::last);
  ASSERT_EQ(all.sizes(), (at::IntArrayRef{3, 11}));
  EXPECT_TRUE(at::allclose(all.narrow(0, 2, 1), last, 1e-5, 1e-6));
}

/// A gradient of the whole model, embedding and tied head included, by central differences.
TEST_P(Passes, GradientsAreTheSlopesOfTheLoss) {
  TinyModel tiny{comm::Communicator(), GetParam()};
  forward_backward(tiny.engine(), sequence(2), 1.0);
  tests::expect_slopes(tiny, 7, [&] { return forward(tiny.engine(), sequence(2)).loss; });
}

/// A pass with experts shared out, of every mesh that the ranks allow.
class SharedExperts : public testing::TestWithParam<TinyKind> {
 protected:
  static constexpr double balance = 0.05;

  struct Expected {
    PassResult sums;
    tests::Elements gradients;
  };
  static Expected alone(const std::vector<data::MicroBatch>& batches) {
    TinyModel tiny(comm::Communicator(), GetParam());
    tiny.shards.reset_gradients();
    Expected expected;
    for (const auto& batch : batches) {
      const PassResult sums = forward_backward(tiny.engine(), batch, Scale(0.1, balance));
      expected.sums.loss += sums.loss;
      expected.sums.balance += sums.balance;
    }
    expected.gradients = tiny.gradients();
    return expected;
  }

  /// All of `passes`, of which this rank has one each; nothing: it has none.
  static void expect_same(int dp_shard, int ep, Blocks blocks,
                          const std::vector<std::optional<data::MicroBatch>>& passes,
                          const Expected& expected) {
    SCOPED_TRACE("dp_shard " + std::to_string(dp_shard) + ", ep " + std::to_string(ep));
    const comm::Communicator& world = tests::world();
    const auto groups = shard::make_groups(tests::mesh_of(world, dp_shard, {.ep = ep}), true);
    TinyModel tiny(groups, TinyModel::in_fp32(), GetParam());
    tiny.shards.reset_gradients();
    Engine engine = tiny.engine();
    engine.blocks = blocks;
    PassResult sums;
    for (const auto& mine : passes) {
      const Pass pass = &mine == &passes.back() ? Pass::last : Pass::more_follow;
      const PassResult one = forward_backward(engine, mine, Scale(0.1, balance), pass);
      sums.loss += one.loss;
      sums.balance += one.balance;
    }
    end_passes(engine);
    EXPECT_NEAR(world.all_reduce(sums.loss, comm::Reduce::sum), expected.sums.loss, 1e-5);
    EXPECT_NEAR(world.all_reduce(sums.balance, comm::Reduce::sum), expected.sums.balance, 1e-5);
    expect_gradients(tiny, expected.gradients);
    const std::int64_t seen = std::ssize(tiny.gradients());
    const std::int64_t copies = world.size() / dp_shard;
    EXPECT_EQ(world.all_reduce(seen, comm::Reduce::sum), copies * std::ssize(expected.gradients));
  }

  /// Calls f(dp_shard, ep) for all there are.
  template <typename F>
  static void for_each_mesh(const F& f) {
    const int ranks = tests::world().size();
    for (int dp_shard = 1; dp_shard <= ranks; ++dp_shard)
      for (int ep = 1; ep <= dp_shard; ++ep)
        if (ranks % dp_shard == 0 && dp_shard % ep == 0) f(dp_shard, ep);
  }
};

TEST_P(SharedExperts, AddUpToThoseOfOneRank) {
  const comm::Communicator& world = tests::world();
  std::vector<data::MicroBatch> all;
  for (std::int64_t number = 0; number < 2 * world.size(); ++number)
    all.push_back(sequence(number));
  const Expected expected = alone(all);
  for (const Blocks blocks : {Blocks::kept, Blocks::recomputed})
    for_each_mesh([&](int dp_shard, int ep) {
      expect_same(dp_shard, ep, blocks,
                  {sequence(world.rank()), sequence(world.rank() + world.size())}, expected);
    });
}

TEST_P(SharedExperts, ServeRanksWithAMicroBatchWhereOthersHaveNone) {
  const comm::Communicator& world = tests::world();
  const Expected expected = alone({sequence(3)});
  for (int having = 0; having < world.size(); ++having)
    for_each_mesh([&](int dp_shard, int ep) {
      const bool has_one = world.rank() == having;
      expect_same(dp_shard, ep, Blocks::kept, {has_one ? std::optional(sequence(3)) : std::nullopt},
                  expected);
    });
}

TEST_P(SharedExperts, HaveTheLossOfForwardAndBackwardInForward) {
  const comm::Communicator& world = tests::world();
  const double expected = alone({sequence(2)}).sums.loss;
  for_each_mesh([&](int dp_shard, int ep) {
    const auto groups = shard::make_groups(tests::mesh_of(world, dp_shard, {.ep = ep}), true);
    TinyModel tiny(groups, TinyModel::in_fp32(), GetParam());
    const LossSum sum =
        forward(tiny.engine(), world.rank() == 0 ? std::optional(sequence(2)) : std::nullopt);
    EXPECT_NEAR(sum.loss, world.rank() == 0 ? expected : 0.0, 1e-5);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, SharedExperts,
                         testing::Values(TinyKind::experts, TinyKind::fused_experts,
                                         TinyKind::sinks),
                         [](const auto& info) {
                           return info.param == TinyKind::experts ? "separate"
                                  : info.param == TinyKind::sinks ? "biased"
                                                                  : "fused";
                         });

INSTANTIATE_TEST_SUITE_P(Models, Passes,
                         testing::Values(TinyKind::own_head, TinyKind::tied, TinyKind::experts),
                         [](const auto& info) {
                           return info.param == TinyKind::tied      ? "tied"
                                  : info.param == TinyKind::experts ? "experts"
                                                                    : "own_head";
                         });

}  // namespace
}  // namespace finetune::train::passes_test
