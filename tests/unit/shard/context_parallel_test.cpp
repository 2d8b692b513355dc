// SPDX-License-Identifier: Apache-2.0
// Attention and blocks on ranks that share every sequence, against one rank that has it whole.

#include "shard/detail/context_parallel.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/detail/worker.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "model/context.hpp"
#include "model/layout.hpp"
#include "model/rope.hpp"
#include "shard/detail/context_ways.hpp"
#include "support/allocations.hpp"
#include "support/margins.hpp"
#include "support/ranks.hpp"
#include "support/weights.hpp"
#include "unit/shard/failing_group.hpp"

namespace finetune::shard::context_parallel_test {
namespace {

using model::Stretch;
using Kind = model::RopeScaling::Kind;

/// A pass, and what its layers see of it.
struct Case {
  std::string name;
  std::int64_t batch = 1, length = 0;
  std::vector<Stretch> stretches = {};
  std::int64_t window = 0, chunk = 0;
  model::RopeScaling rope = {};
};

model::RopeScaling stretched(Kind kind, double amplitude = 1) {
  return {.kind = kind, .factor = 4, .original_max_positions = 32, .amplitude = amplitude};
}

std::vector<Case> cases() {
  // Three samples in a row, a short row, and padding at both ends.
  const std::vector<Stretch> packed = {{0, 7},        {7, 1},   {8, 23},
                                       {31, 2, true}, {33, 30}, {63, 3, true}};
  return {{"SamplesOfEvenRows", 2, 32},
          {"LengthsThatDoNotDivide", 3, 29},
          {"FewerTokensThanChunks", 1, 5},
          {"OneToken", 2, 1},
          {"PackedSamples", 2, 33, packed},
          {"Windows", 2, 45, {}, 6},
          {"WindowsLongerThanChunksOfRanks", 1, 150, {}, 70},
          {"WindowsInPackedSamples", 2, 33, packed, 4},
          {"WindowsOfOneToken", 1, 19, {}, 1},
          {"Chunks", 1, 41, {}, 0, 8},
          {"ChunksInPackedSamples", 2, 33, packed, 0, 9},
          {"SamplesOfTiles", 1, 210},
          {"LinearlyScaledPositions", 1, 150, {}, 0, 0, stretched(Kind::linear)},
          {"BeyondTheContextThatLlama3Scales", 2, 83, {}, 0, 0, stretched(Kind::llama3)},
          {"BeyondTheContextThatYarnScales", 2, 83, {}, 0, 0, stretched(Kind::yarn, 1.25)},
          {"YarnInPackedSamples", 2, 33, packed, 0, 0, stretched(Kind::yarn, 1.25)}};
}

model::Architecture architecture(const model::RopeScaling& rope = {}) {
  model::Architecture a = tests::rotary({1, 24, 6, 2, 8, 36, 52});
  a.rope_scaling = rope;
  return a;
}

model::AttentionShape shape_of(const Case& each) {
  return {.num_heads = 6,
          .num_kv_heads = 2,
          .head_size = 8,
          .window = each.window,
          .chunk = each.chunk};
}

model::Sequence whole_sequence(const Case& each) {
  const model::Architecture a = architecture(each.rope);
  if (each.stretches.empty()) return model::make_sequence(a, each.batch, each.length);
  return model::make_sequence(a, each.batch, each.length, each.stretches);
}

model::Sequence own_sequence(const Case& each, const comm::Group& cp) {
  return model::part_of(whole_sequence(each), std::make_shared<model::ContextLayout>(
                                                  each.batch, each.length, cp.size(), cp.rank()));
}

at::Tensor own_rows(const at::Tensor& whole, const model::Sequence& sequence) {
  return whole.index_select(0, at::tensor(sequence.context->own_tokens(), at::kLong));
}

/// What a token of the pass has; zeros for padding, whose results nobody looks at.
at::Tensor without_padding(const at::Tensor& whole, const Case& each) {
  at::Tensor rest = whole.clone();
  for (const Stretch& stretch : each.stretches)
    if (stretch.is_padding) rest.narrow(0, stretch.begin, stretch.length).zero_();
  return rest;
}

/// This rank's rows of what one rank has, to 1e-5 of its largest entry.
void expect_rows(const at::Tensor& actual, const at::Tensor& whole,
                 const model::Sequence& sequence) {
  const at::Tensor expected = own_rows(whole, sequence);
  ASSERT_EQ(actual.sizes(), expected.sizes());
  if (actual.numel() == 0) return;
  const double difference = (actual - expected).abs().max().item<double>();
  EXPECT_LE(difference, tests::noted(difference, 1e-5 * whole.abs().max().item<double>()));
}

struct Results {
  at::Tensor y, dx;
};

Results attend(model::Ops& ops, const at::Tensor& qkv, const at::Tensor& dy, const Case& each,
               const model::Sequence& sequence) {
  // Turned in place, which a leaf must not be.
  const at::Tensor x = qkv.clone().set_requires_grad(true);
  const at::Tensor y = ops.attention(x.mul(1.0), shape_of(each), sequence, 0);
  return {y.detach(), torch::autograd::grad({y}, {x}, {dy})[0]};
}

class ContextAttention
    : public testing::TestWithParam<std::tuple<Case, plan::ContextMethod, model::Path>> {
 protected:
  comm::MpiGroup cp{tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind)};
};

TEST_P(ContextAttention, IsThatOfOneRank) {
  const auto& [each, method, path] = GetParam();
  const std::int64_t tokens = each.batch * each.length;
  const at::Tensor qkv = tests::normal({tokens, 80}, 7);
  const at::Tensor dy = without_padding(tests::normal({tokens, 48}, 8), each);
  const model::ParameterTable table = model::lay_out(architecture());
  tests::TableWeights weights(table, at::kFloat);
  model::Ops one(weights, path);
  Results expected = attend(one, qkv, dy, each, whole_sequence(each));
  expected.y = without_padding(expected.y, each);

  ContextParallelOps ops(weights, &cp, method, path);
  const model::Sequence sequence = own_sequence(each, cp);
  const Results results =
      attend(ops, own_rows(qkv, sequence), own_rows(dy, sequence), each, sequence);

  expect_rows(results.y, expected.y, sequence);
  expect_rows(results.dx, expected.dx, sequence);
}

std::string name_of(
    const testing::TestParamInfo<std::tuple<Case, plan::ContextMethod, model::Path>>& info) {
  const auto& [each, method, path] = info.param;
  return each.name + (method == plan::ContextMethod::ring ? "Ring" : "Gather") +
         (path == model::Path::composed ? "Composed" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, ContextAttention,
    testing::Combine(testing::ValuesIn(cases()),
                     testing::Values(plan::ContextMethod::ring, plan::ContextMethod::gather),
                     testing::Values(model::Path::kernels, model::Path::composed)),
    name_of);

TEST(ContextCollectives, ThatFailLeaveTheirMemoryBehind) {
  if (tests::world().size() == 1) return;  // sends nothing
  const tests::LeftOnPurpose left_on_purpose;
  const Case each{.name = "", .batch = 1, .length = 64};
  tests::FailingGroup cp(tests::world(), tests::FailingGroup::Fails::in_wait);
  const model::Sequence sequence = own_sequence(each, cp);
  const at::Tensor qkv = own_rows(tests::normal({64, 80}, 7), sequence);
  for (const auto method : {plan::ContextMethod::ring, plan::ContextMethod::gather}) {
    const auto way = make_way(method, sequence, shape_of(each), 4, cp, at::kCPU);
    const tests::Allocations allocations;
    EXPECT_THROW(way->attend(qkv, shape_of(each), model::Path::composed), core::Error);
    // Keys and values of some tokens of others at least, and what was sent.
    EXPECT_GE(allocations.live_bytes(), 2 * 32 * 4);
  }
}

/// Of two rows of 32,768 tokens on four ranks: 8 heads of 128 in bf16, 4 KiB per token.
bool goes_round(plan::ContextMethod method, std::vector<Stretch> stretches,
                std::int64_t window = 0) {
  model::Sequence sequence;
  sequence.batch = 2;
  sequence.length = 32768;
  sequence.stretches = std::move(stretches);
  sequence.context = std::make_shared<model::ContextLayout>(2, 32768, 4, 1);
  const model::AttentionShape shape = {
      .num_heads = 32, .num_kv_heads = 8, .head_size = 128, .window = window};
  return shard::goes_round(method, sequence, shape, 2);
}

/// All of 65,536 tokens in samples of a length.
std::vector<Stretch> samples_of(std::int64_t length) {
  std::vector<Stretch> stretches;
  for (std::int64_t begin = 0; begin < 65536; begin += length)
    stretches.push_back({begin, length});
  return stretches;
}

TEST(ContextMethod, KeysOfLongSamplesGoRoundAndThoseOfShortOnesAreFetched) {
  using plan::ContextMethod;
  EXPECT_TRUE(goes_round(ContextMethod::automatic, {}));
  EXPECT_TRUE(goes_round(ContextMethod::automatic, samples_of(32768)));
  EXPECT_FALSE(goes_round(ContextMethod::automatic, samples_of(2048)));
}

TEST(ContextMethod, WindowsAreFetchedWhateverIsAskedFor) {
  using plan::ContextMethod;
  EXPECT_FALSE(goes_round(ContextMethod::automatic, {}, 4096));
  EXPECT_FALSE(goes_round(ContextMethod::ring, {}, 4096));
  EXPECT_TRUE(goes_round(ContextMethod::ring, samples_of(2048)));
  EXPECT_FALSE(goes_round(ContextMethod::gather, {}));
}

}  // namespace
}  // namespace finetune::shard::context_parallel_test
