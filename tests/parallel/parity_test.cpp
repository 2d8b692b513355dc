// SPDX-License-Identifier: Apache-2.0
// However ranks share the work, they train the same model.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "adapters/lora/settings.hpp"
#include "comm/agree.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "parallel/trainer.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "train/input/arithmetic.hpp"
#include "train/run/detail/replicas.hpp"

namespace finetune::tests::parity_test {
namespace {

using plan::Determinism;

Trajectory alone(plan::Numbers numbers, std::int64_t num_steps,
                 TinyKind kind = TinyKind::own_head) {
  return Trainer({}, {.numbers = numbers, .kind = kind}).train(num_steps);
}

/// precision.mode.
struct Precision {
  const char* name;
  core::DType compute;
  bool is_true = false;
  bool widens = false;  ///< also where this processor does not need it
  bool is_fp8 = false;
  bool has_fp8_weight_gradients = false;

  plan::Numbers numbers(Determinism determinism) const {
    plan::Numbers numbers = tests::numbers(compute, determinism);
    if (is_true) numbers.master = numbers.moments = compute;
    numbers.widens |= widens;
    if (is_fp8) numbers.fp8 = model::Fp8Recipe{.weight_gradients = has_fp8_weight_gradients};
    return numbers;
  }
  /// Products of 8 bits take no others.
  std::vector<TinyKind> kinds() const {
    if (is_fp8) return {TinyKind::wide, TinyKind::wide_experts};
    return {TinyKind::own_head, TinyKind::tied, TinyKind::experts};
  }
};

class EveryPrecision : public testing::TestWithParam<Precision> {};

TEST_P(EveryPrecision, TopologyGivesTheSameBitsOnAnyRanks) {
  for (const TinyKind kind : GetParam().kinds()) {
    const plan::Numbers exact = GetParam().numbers(Determinism::topology);
    const Trajectory expected = alone(exact, 8, kind);
    for (Arrangement setup : arrangements(world().size(), exact)) {
      setup.kind = kind;
      const Trajectory got = Trainer(world(), setup).train(8);
      EXPECT_EQ(got.losses, expected.losses) << setup.name;
      EXPECT_EQ(got.norms, expected.norms) << setup.name;
      EXPECT_TRUE(got.weights == expected.weights) << setup.name;
      EXPECT_EQ(got.validation_loss, expected.validation_loss) << setup.name;
    }
  }
}

/// Adapters in all their parts: dropout, magnitudes, modules trained whole, a 4-bit base, factors.
std::vector<model::AdapterSettings> adapters() {
  model::AdapterSettings lora;
  lora.name = "lora";
  lora.of<adapters::lora::Settings>().r = 3;
  lora.of<adapters::lora::Settings>().dropout = 0.25;
  model::AdapterSettings whole = lora;
  whole.target_modules = {"q_proj", "v_proj"};
  whole.modules_to_save = {"embed_tokens", "lm_head"};
  model::AdapterSettings qlora = lora;
  qlora.name = "qlora";
  qlora.of<adapters::lora::Settings>().use_dora = true;
  model::AdapterSettings factors;
  factors.name = "ia3";
  factors.target_modules = {"k_proj", "v_proj", "down_proj"};
  model::AdapterSettings vocabulary = lora;
  vocabulary.target_modules = {"embed_tokens", "lm_head", "o_proj"};
  model::AdapterSettings factored = lora;
  factored.of<adapters::lora::Settings>().init = "pissa_niter_2";
  return {lora, whole, qlora, factors, vocabulary, factored};
}

TEST_P(EveryPrecision, TopologyGivesAdaptersTheSameBitsOnAnyRanks) {
  for (const model::AdapterSettings& adapter : adapters()) {
    const plan::Numbers exact = GetParam().numbers(Determinism::topology);
    const TinyKind kind = GetParam().kinds().front();
    const Trajectory expected =
        Trainer({}, {.numbers = exact, .kind = kind, .adapter = adapter}).train(6);
    for (Arrangement setup : arrangements(world().size(), exact)) {
      setup.adapter = adapter;
      setup.kind = kind;
      const Trajectory got = Trainer(world(), setup).train(6);
      const std::string name = setup.name + (", " + adapter.name);
      EXPECT_EQ(got.losses, expected.losses) << name;
      EXPECT_EQ(got.norms, expected.norms) << name;
      EXPECT_TRUE(got.weights == expected.weights) << name;
      EXPECT_EQ(got.validation_loss, expected.validation_loss) << name;
    }
  }
}

TEST_P(EveryPrecision, RunGivesTheSameBitsOnTheSameRanks) {
  for (const Arrangement& setup :
       arrangements(world().size(), GetParam().numbers(Determinism::run))) {
    const Trajectory first = Trainer(world(), setup).train(5);
    EXPECT_TRUE(Trainer(world(), setup).train(5) == first) << setup.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, EveryPrecision,
    testing::Values(Precision{"fp32", core::DType::f32}, Precision{"bf16_mixed", core::DType::bf16},
                    Precision{"bf16_true_widened", core::DType::bf16, true, true},
                    Precision{"fp16_mixed_widened", core::DType::f16, false, true},
                    Precision{"fp8_mixed", core::DType::bf16, false, false, true},
                    Precision{"fp8_weight_gradients", core::DType::bf16, false, false, true, true}),
    [](const auto& info) { return info.param.name; });

TEST(Arithmetic, OneRankWithoutInstructionsForBf16MakesAllWiden) {
  const plan::Numbers bf16 = numbers(core::DType::bf16, Determinism::off);
  const bool is_last = world().rank() == world().size() - 1;
  EXPECT_TRUE(train::choose_widening(world(), plan::CpuProducts::automatic, bf16, is_last));
  EXPECT_FALSE(train::choose_widening(world(), plan::CpuProducts::automatic, bf16, false));
  EXPECT_TRUE(train::choose_widening(world(), plan::CpuProducts::widened, bf16, false));
  EXPECT_FALSE(train::choose_widening(world(), plan::CpuProducts::native, bf16, is_last));
  EXPECT_FALSE(train::choose_widening(world(), plan::CpuProducts::widened,
                                      numbers(core::DType::f32, Determinism::off), is_last));
}

/// Infinite gradients on one rank: all skip the step, halve the scale, and train on.
TEST(LossScaling, SkipsTheStepOnEveryRankIfOneOverflows) {
  for (const Arrangement& setup :
       arrangements(world().size(), numbers(core::DType::f16, Determinism::off))) {
    Trainer trainer(world(), setup);
    trainer.step(0);
    const std::vector<float> before = trainer.weights();
    const at::Tensor moment = trainer.optimizer().exp_avg(0).clone();
    // 2^30 times a loss of about 2 is beyond fp16's 65504 in the backward pass.
    trainer.loss_scale() = optim::LossScale(
        {{"scale", 0x1p30}, {"good_steps", 0}, {"skipped", 0}, {"skipped_in_all", 0}}, "test");
    const train::StepResult skipped = trainer.step(1);
    EXPECT_TRUE(skipped.is_skipped) << setup.name;
    EXPECT_EQ(trainer.loss_scale().scale(), 0x1p29) << setup.name;
    EXPECT_EQ(trainer.loss_scale().skipped_in_all(), 1) << setup.name;
    EXPECT_TRUE(trainer.weights() == before) << setup.name;
    EXPECT_TRUE(at::equal(trainer.optimizer().exp_avg(0), moment)) << setup.name;
    trainer.loss_scale() = modest_scale();
    EXPECT_FALSE(trainer.step(2).is_skipped) << setup.name;
    EXPECT_TRUE(trainer.weights() != before) << setup.name;
  }
}

TEST(LossScaling, DoesNotChangeWhatIsTrained) {
  const Trajectory expected = alone(numbers(core::DType::f32, Determinism::off), 4);
  for (const Arrangement& setup :
       arrangements(world().size(), numbers(core::DType::f16, Determinism::off))) {
    const Trajectory got = Trainer(world(), setup).train(4);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i], 2e-2) << setup.name << ", step " << i;
    EXPECT_NEAR(got.norms[0], expected.norms[0], 5e-3 * expected.norms[0]) << setup.name;
  }
}

TEST(Parity, EveryStrategyHasTheLossesOfNoSharding) {
  const plan::Numbers single = numbers(core::DType::f32, Determinism::off);
  const Trajectory expected = alone(single, 10);
  for (const Arrangement& setup : arrangements(world().size(), single)) {
    const Trajectory got = Trainer(world(), setup).train(10);
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-5) << setup.name << ", step " << i;
    // Before the first update nothing but the order of sums differs.
    EXPECT_NEAR(got.norms[0], expected.norms[0], 1e-6 * expected.norms[0]) << setup.name;
  }
}

/// Experts' load is that of each sample, so it does not matter which ones share a micro-batch.
void expect_any_split(const plan::Numbers& numbers, TinyKind kind) {
  const std::vector<float> expected =
      Trainer({}, {.numbers = numbers, .kind = kind, .micro_batch = 7}).gradient();
  float largest = 0;
  for (const float value : expected)
    largest = std::max(largest, std::abs(value));
  for (const std::int64_t micro_batch : {1, 2, 3, 7}) {
    for (Arrangement setup : arrangements(world().size(), numbers)) {
      setup.micro_batch = micro_batch;
      setup.kind = kind;
      const std::vector<float> got = Trainer(world(), setup).gradient();
      float difference = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        difference = std::max(difference, std::abs(got[i] - expected[i]));
      EXPECT_LE(difference, 1e-6f * largest) << setup.name << ", micro-batches of " << micro_batch;
    }
  }
}

TEST(Parity, AnySplitOfABatchGivesTheSameGradient) {
  for (const TinyKind kind : {TinyKind::own_head, TinyKind::experts})
    expect_any_split(numbers(core::DType::f32, Determinism::off), kind);
}

/// In fp32, where a lone rank's sums are its gradients' buffers, passes are not added one by one.
TEST(Parity, ARankThatCommunicatesAloneTrainsTheSameBits) {
  const auto self = world().split(world().rank(), 0, "self");
  for (const auto& [compute, determinism, micro_batch] :
       {std::tuple(core::DType::f32, Determinism::run, 7),
        std::tuple(core::DType::f32, Determinism::topology, 2),
        std::tuple(core::DType::bf16, Determinism::run, 2),
        std::tuple(core::DType::bf16, Determinism::topology, 2)}) {
    Arrangement setup{.numbers = numbers(compute, determinism), .micro_batch = micro_batch};
    const Trajectory expected = Trainer(self, setup).train(5);
    setup.alone = plan::Alone::communicates;
    for (const bool overlap : {true, false}) {
      setup.overlap = overlap;
      Trainer trainer(self, setup);
      EXPECT_TRUE(trainer.train(5) == expected);
      EXPECT_GT(trainer.groups().fsdp->traffic().collectives, 5);
      EXPECT_GE(trainer.groups().dp_replicate->traffic().collectives, 5);
    }
  }
}

TEST(Parity, FixedPointChangesLessThanRounding) {
  const Trajectory exact = alone(numbers(core::DType::f32, Determinism::topology), 10);
  const Trajectory usual = alone(numbers(core::DType::f32, Determinism::off), 10);
  for (std::size_t i = 0; i < exact.losses.size(); ++i)
    EXPECT_NEAR(exact.losses[i], usual.losses[i], 1e-5);
}

TEST(Parity, GradientsOnTheWireMayBeNarrower) {
  const Trajectory expected = alone(numbers(core::DType::f32, Determinism::off), 10);
  for (const core::DType wire : {core::DType::bf16, core::DType::f16}) {
    plan::Numbers narrow = numbers(core::DType::f32, Determinism::off);
    narrow.reduce = wire;
    for (const Arrangement& setup : arrangements(world().size(), narrow)) {
      const Trajectory got = Trainer(world(), setup).train(10);
      // Eight bits of a mantissa at least; the mean over many elements is closer.
      EXPECT_NEAR(got.norms[0], expected.norms[0], 2e-3 * expected.norms[0]) << setup.name;
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(got.losses[i], expected.losses[i], 2e-2) << setup.name << ", step " << i;
    }
  }
}

TEST(Parity, CopiesOfTheModelAreTheSameAfterEachStep) {
  for (const core::DType compute : {core::DType::f32, core::DType::bf16}) {
    for (const Arrangement& setup :
         arrangements(world().size(), numbers(compute, Determinism::off))) {
      Trainer trainer(world(), setup);
      for (std::int64_t i = 0; i < 5; ++i) {
        trainer.step(i);
        EXPECT_NO_THROW(train::require_equal_replicas(trainer.shards(), trainer.optimizer(),
                                                      trainer.world(), i));
      }
    }
  }
}

TEST(Parity, ACopyThatDiffersIsNamed) {
  if (world().size() == 1) GTEST_SKIP() << "one rank has no other copy";
  Trainer trainer(world(), {.dp_shard = 1, .sharding = plan::Sharding::no_shard});
  if (world().rank() == 1) trainer.shards().master(2)[0] += 1e-6;
  try {
    train::require_equal_replicas(trainer.shards(), trainer.optimizer(), trainer.world(), 7);
    ADD_FAILURE() << "nothing thrown";
  } catch (const comm::AgreedError& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
    EXPECT_TRUE(
        std::string(error.what())
            .starts_with("step 7: copy 1 of the model has other weights or moments than copy 0 in "
                         "unit \"layers.1\""))
        << error.what();
  }
}

/// One rank's gradient is beyond 2^18 and more: every rank hears which it is, and no weight
/// changes.
TEST(Parity, AGradientOutOfRangeIsAnErrorWithAName) {
  for (const Arrangement& setup :
       arrangements(world().size(), numbers(core::DType::f32, Determinism::topology))) {
    Trainer trainer(world(), setup);
    // Norm weights this large make gradients of 1e10 in the rows before them.
    for (int unit = 0; unit < trainer.shards().num_units(); ++unit)
      trainer.shards().master(unit).mul_(1e3);
    trainer.shards().publish_all();
    const std::vector<float> before = trainer.weights();
    try {
      trainer.step(4);
      ADD_FAILURE() << setup.name << ": nothing thrown";
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
      EXPECT_TRUE(std::string(error.what()).starts_with("step 5: the gradient of "))
          << error.what();
    }
    EXPECT_TRUE(trainer.weights() == before) << setup.name;
  }
}

TEST(Parity, BytesSentAreThoseOfTheFormulas) {
  const int n = world().size();
  for (const Arrangement& setup : arrangements(n, numbers(core::DType::bf16, Determinism::off))) {
    if (std::string(setup.bucket) == "LAYER" || setup.blocks == train::Blocks::recomputed) continue;
    if (setup.prefetch > 1) continue;
    Trainer trainer(world(), setup);
    trainer.step(0);
    std::int64_t shard = 0;       // elements a rank keeps
    std::int64_t last_block = 0;  // of them, those of the last block, which stays gathered
    for (int unit = 0; unit < trainer.shards().num_units(); ++unit)
      shard += trainer.shards().master(unit).numel();
    const bool is_one_unit = trainer.shards().num_units() == 1;
    last_block = trainer.shards().master(std::max(0, trainer.shards().num_units() - 2)).numel();
    const std::int64_t embedding = trainer.shards().master(0).numel();
    const std::int64_t first_block = is_one_unit ? 0 : trainer.shards().master(1).numel();
    const std::int64_t head = trainer.shards().master(trainer.shards().num_units() - 1).numel();

    const std::int64_t others = setup.dp_shard - 1;
    const std::int64_t passes = (4 + n - 1) / n;  // of four micro-batches
    // Forward gathers everything, backward the blocks but the last; SHARD_GRAD_OP once a step, and
    // what is one unit once a pass. With overlap a pass leaves what the next begins with.
    const bool is_once =
        setup.sharding == plan::Sharding::shard_grad_op || (is_one_unit && setup.overlap);
    const std::int64_t left = setup.overlap ? (passes - 1) * first_block : 0;
    const std::int64_t gathered = is_once ? shard
                                  : is_one_unit
                                      ? passes * shard
                                      : passes * (2 * shard - last_block - embedding - head) - left;
    const std::int64_t reduced = passes * shard;
    EXPECT_EQ(trainer.groups().fsdp->traffic().sent_bytes, others * (2 * gathered + 4 * reduced))
        << setup.name;
    // An all-reduce sends (copies - 1) / copies of the shard twice, up to rounding by unit.
    const std::int64_t copies = n / setup.dp_shard;
    const auto sent = static_cast<double>(trainer.groups().dp_replicate->traffic().sent_bytes);
    const double expected =
        4.0 * 2 * static_cast<double>((copies - 1) * shard) / static_cast<double>(copies);
    EXPECT_NEAR(sent, expected,
                4.0 * 2 * static_cast<double>(copies * trainer.shards().num_units()))
        << setup.name;
  }
}

/// The ranks as two nodes, `on_second` of them on the second.
comm::Communicator two_nodes(int on_second) {
  return world().as_on_node(world().rank() < world().size() - on_second ? 0 : 1);
}

TEST(SeveralNodes, TrainTheBitsOfOneNode) {
  if (world().size() < 3) GTEST_SKIP() << "two nodes with two ranks on one: three ranks";
  for (const Determinism determinism : {Determinism::run, Determinism::topology}) {
    for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
      for (const Arrangement& setup : arrangements(world().size(), numbers(dtype, determinism))) {
        const Trajectory expected = Trainer(world(), setup).train(2);
        for (int on_second = 1; on_second < world().size(); ++on_second)
          EXPECT_TRUE(Trainer(two_nodes(on_second), setup).train(2) == expected)
              << setup.name << ", " << on_second << " ranks on the second node";
      }
    }
  }
}

/// What a plan says a node sends is what its ranks send.
TEST(SeveralNodes, SendWhatAPlanCounts) {
  if (world().size() != 4) GTEST_SKIP() << "two nodes of two ranks";
  const comm::Communicator nodes = two_nodes(2);
  const comm::Communicator node = nodes.split(nodes.node(), nodes.rank(), "node");
  const auto worker = std::make_shared<comm::Worker>(comm::Worker::Where::behind);
  const plan::Links links({}, true);
  constexpr std::int64_t count = 6;
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::i64}) {
    comm::MpiGroup group(nodes, worker);
    std::vector<std::int64_t> shard(count), full(4 * count);
    const std::int64_t element = core::size_bytes(dtype);
    const auto bytes = static_cast<double>(4 * count * element);
    const plan::GroupShape shape = {.size = 4, .num_nodes = 2};
    const plan::Summed summed = {.element_bytes = element,
                                 .sum_bytes = dtype == core::DType::i64 ? 8 : 4,
                                 .any_order = dtype == core::DType::i64};
    const auto sent = [&] {
      return static_cast<double>(
          node.all_reduce(group.traffic().to_other_nodes_bytes, comm::Reduce::sum));
    };
    group.wait(group.all_gather(dtype, shard.data(), full.data(), count));
    const double gathered = sent();
    EXPECT_EQ(gathered, links.gathered_by_node(shape, bytes));
    group.wait(group.reduce_scatter(dtype, full.data(), shard.data(), count));
    EXPECT_EQ(sent() - gathered, links.reduced_by_node(shape, bytes, summed));
  }
}

}  // namespace
}  // namespace finetune::tests::parity_test
