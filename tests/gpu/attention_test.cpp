// SPDX-License-Identifier: Apache-2.0
// Attention of a pass with rotary positions, by every kernel that a GPU may choose: lengths across
// the edges of tiles, head sizes, groups of query heads, windows, chunks, samples that share rows.
#include <utility>
#include <vector>

#include "gpu/as_on_cpu.hpp"
#include "model/device.hpp"
#include "model/gpu_attention.hpp"
#include "model/rope.hpp"

namespace finetune::tests::gpu::attention_test {
namespace {

using model::GpuAttention;
using model::Stretch;

struct Case {
  const char* name;
  at::ScalarType dtype;
  GpuAttention who;  ///< of compute capability 9.0
  model::AttentionShape shape;
  std::int64_t batch = 2, length = 130;
  std::vector<Stretch> stretches = {};
  model::Path path = model::Path::kernels;

  friend void PrintTo(const Case& of, std::ostream* to) { *to << of.name; }
};

model::AttentionShape shape(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size) {
  return {.num_heads = heads, .num_kv_heads = kv_heads, .head_size = head_size};
}
model::AttentionShape with_window(model::AttentionShape shape, std::int64_t window) {
  shape.window = window;
  return shape;
}
model::AttentionShape with_chunk(model::AttentionShape shape, std::int64_t chunk) {
  shape.chunk = chunk;
  return shape;
}

model::AttentionShape with_sinks(model::AttentionShape shape) {
  shape.sinks = 0;
  return shape;
}

/// Of 2 rows of 130: samples of 5, 1, 120 and 128 tokens, and padding.
const std::vector<Stretch> packed = {{0, 5, false},  {5, 1, false},     {6, 120, false},
                                     {126, 4, true}, {130, 128, false}, {258, 2, true}};

/// Tokens that are not padding.
at::Tensor real_tokens(const Case& c) {
  std::vector<std::int64_t> real;
  if (c.stretches.empty()) return at::arange(c.batch * c.length, at::kLong);
  for (const Stretch& stretch : c.stretches)
    for (std::int64_t i = 0; i < stretch.length && !stretch.is_padding; ++i)
      real.push_back(stretch.begin + i);
  return at::tensor(real, at::kLong);
}

void attend(Computation& c, const Case& of) {
  const std::int64_t n = of.batch * of.length;
  const model::Architecture a = rotary(of.shape.head_size, 1000);
  const model::Sequence sequence =
      of.stretches.empty() ? model::make_sequence(a, of.batch, of.length, c.device())
                           : model::make_sequence(a, of.batch, of.length, of.stretches, c.device());
  TinyWeights sinks({c.normal({of.shape.num_heads}, 3)});
  model::Ops ops(sinks, of.path);
  const at::Tensor real = real_tokens(of);
  const at::Tensor x = c.leaf({n, of.shape.num_channels()}, 1);
  // Whatever padding gives and takes is nobody's business.
  const at::Tensor d = at::zeros({n, of.shape.num_heads * of.shape.head_size});
  d.index_copy_(0, real, tests::normal({real.numel(), d.size(1)}, 2));
  const at::Tensor y = ops.attention(x.clone(), of.shape, sequence, 0);
  const at::Tensor d_x = torch::autograd::grad({y}, {x}, {c.number(d)})[0];
  c.keep("y", y.detach().cpu().index_select(0, real));
  c.keep("dx", d_x.cpu().index_select(0, real));
  c.keep_gradients(sinks, 1);
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, IsThatOfTheCpu) {
  const Case& of = GetParam();
  // Of others the table has more rows.
  if (model::compute_capability(device()) == 90 && of.path != model::Path::composed) {
    EXPECT_EQ(model::choose_gpu_attention(90, of.dtype, of.shape.head_size).who, of.who);
  }
  expect_as_on_cpu(of.dtype, [&](Computation& c) { attend(c, of); });
}

TEST_P(Attention, GivesTheSameBitsTwice) {
  const Case& of = GetParam();
  std::vector<Computation> runs(2, Computation(device(), of.dtype, of.dtype));
  for (Computation& c : runs)
    attend(c, of);
  for (std::size_t i = 0; i < runs[0].results().size(); ++i)
    EXPECT_TRUE(at::equal(runs[0].results()[i].second, runs[1].results()[i].second));
}

std::vector<Case> cases() {
  using enum GpuAttention;
  const auto flash_sizes = std::vector<std::pair<const char*, std::int64_t>>{
      {"flash_32", 32},   {"flash_64", 64},   {"flash_96", 96},
      {"flash_128", 128}, {"flash_192", 192}, {"flash_256", 256}};
  std::vector<Case> all;
  for (const auto& [name, size] : flash_sizes)
    all.push_back({name, at::kBFloat16, flash, shape(4, 4, size)});
  const model::AttentionShape gqa = shape(8, 2, 64);
  const std::vector<Case> more = {
      {"flash_fp16", at::kHalf, flash, shape(4, 4, 128)},
      {"flash_groups", at::kBFloat16, flash, gqa},
      {"flash_one_key_head", at::kBFloat16, flash, shape(4, 1, 64)},
      {"flash_one_token", at::kBFloat16, flash, gqa, 3, 1},
      {"flash_long", at::kBFloat16, flash, gqa, 1, 517},
      {"flash_packed", at::kBFloat16, flash, gqa, 2, 130, packed},
      {"flash_window", at::kBFloat16, flash, with_window(gqa, 17)},
      {"flash_window_packed", at::kHalf, flash, with_window(gqa, 17), 2, 130, packed},
      {"flash_chunk", at::kBFloat16, flash, with_chunk(gqa, 48)},
      {"efficient_fp32", at::kFloat, efficient, shape(4, 4, 64)},
      {"efficient_fp32_groups", at::kFloat, efficient, gqa},
      {"efficient_fp32_packed", at::kFloat, efficient, gqa, 2, 130, packed},
      {"efficient_fp32_window", at::kFloat, efficient, with_window(gqa, 17)},
      {"efficient_fp32_window_packed", at::kFloat, efficient, with_window(gqa, 17), 2, 130, packed},
      {"efficient_fp32_chunk", at::kFloat, efficient, with_chunk(gqa, 48)},
      {"efficient_large_heads", at::kBFloat16, efficient, shape(2, 1, 320)},
      {"efficient_large_heads_window", at::kHalf, efficient, with_window(shape(2, 1, 320), 33)},
      {"flash_sinks", at::kBFloat16, flash, with_sinks(gqa)},
      {"flash_sinks_window_packed", at::kHalf, flash, with_sinks(with_window(gqa, 17)), 2, 130,
       packed},
      {"efficient_fp32_sinks", at::kFloat, efficient, with_sinks(gqa)},
      {"efficient_fp32_sinks_window_packed", at::kFloat, efficient,
       with_sinks(with_window(gqa, 17)), 2, 130, packed},
      {"composed_odd_heads_sinks", at::kBFloat16, composed, with_sinks(shape(4, 2, 12)), 2, 130,
       packed},
      {"composed_odd_heads", at::kBFloat16, composed, shape(4, 2, 12)},
      {"composed_odd_heads_packed", at::kHalf, composed, shape(4, 2, 12), 2, 130, packed},
      {"composed_odd_heads_window", at::kFloat, composed, with_window(shape(4, 2, 6), 17)},
      {"composed_bf16", at::kBFloat16, composed, gqa, 2, 130, {}, model::Path::composed},
      {"composed_fp32_packed", at::kFloat, composed, gqa, 2, 130, packed, model::Path::composed},
      {"composed_window",
       at::kBFloat16,
       composed,
       with_window(gqa, 17),
       2,
       130,
       {},
       model::Path::composed},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Attention, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

class CachedAttention : public testing::TestWithParam<at::ScalarType> {};

TEST_P(CachedAttention, IsThatOfTheCpu) {
  const model::AttentionShape gqa = shape(8, 2, 64);
  expect_as_on_cpu(GetParam(), [&](Computation& c) {
    TinyWeights none({});
    model::Ops ops(none);
    const at::Tensor x = c.normal({20, gqa.num_channels()}, 1);
    model::KvCache cache;
    cache.layers.resize(1);
    std::vector<at::Tensor> outputs;
    for (const std::int64_t length : {9, 1, 1, 9}) {
      const auto sequence = model::make_sequence(rotary(64, 1000), length, cache, c.device());
      outputs.push_back(ops.attention(x.narrow(0, cache.length, length).clone(), gqa, sequence, 0));
      cache.length += length;
    }
    c.keep("y", at::cat(outputs));
  });
}
INSTANTIATE_TEST_SUITE_P(All, CachedAttention, all_dtypes,
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace finetune::tests::gpu::attention_test
