// SPDX-License-Identifier: Apache-2.0
// Qwen 1 is Qwen 2 with as many key heads as query heads, one tensor for q, k and v, and other
// names.
#include <gtest/gtest.h>

#include "base/initial_weights.hpp"
#include "model/rope.hpp"
#include "models/qwen/qwen.hpp"
#include "support/ranks.hpp"
#include "train/step/passes.hpp"

namespace finetune::qwen1_test {
namespace {

core::Json config() {
  return {{"model_type", "qwen"},
          {"hidden_size", 8},
          {"intermediate_size", 24},
          {"vocab_size", 11},
          {"num_attention_heads", 2},
          {"num_hidden_layers", 2},
          {"kv_channels", 4},
          {"seq_length", 32},
          {"max_position_embeddings", 64},
          {"layer_norm_epsilon", 1e-6},
          {"no_bias", true},
          {"use_dynamic_ntk", true},
          {"use_logn_attn", true},
          {"bf16", true},
          {"initializer_range", 0.5}};
}

TEST(Qwen1, ReadsItsOwnWords) {
  const auto a = models::qwen::qwen1().read(config(), "config.json");
  EXPECT_EQ(a.d_ff, 12);
  EXPECT_EQ(a.max_positions, 32);
  EXPECT_EQ(a.num_kv_heads, 2);
  EXPECT_EQ(a.file_dtype, core::DType::bf16);
  const auto table = models::qwen::qwen1().describe(a);
  EXPECT_EQ(table.rows[2].name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(table.rows[2].shape, (std::vector<std::int64_t>{24, 8}));
  EXPECT_EQ(table.rows[3].name, "transformer.h.0.attn.c_attn.bias");
}

/// Logits with weights that lie in memory as those of the other family do.
at::Tensor logits(const model::ModelFamily& family, const model::Architecture& a) {
  const auto table = family.describe(a);
  const plan::ShardMap map(table, 1);
  const auto model = family.build(a);
  shard::Options options;
  options.numbers.compute = core::DType::f32;
  const comm::Communicator self;
  const shard::Groups groups = shard::one_copy(self);
  shard::ModelShards shards(table, map, groups, options);
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    at::Tensor master = shards.master(unit);
    for (std::int64_t i = 0; i < master.numel(); ++i)
      master[i].fill_(std::sin(0.7 * static_cast<double>(i * i % 97 + unit)));
  }
  shards.publish_all();
  model::Ops ops(shards);
  const train::Engine engine{a, *model, ops, shards};
  return train::logits(engine, at::tensor({1, 5, 9, 2, 2, 7}, at::kLong),
                       model::make_sequence(a, 1, 6), train::Positions::all);
}

TEST(Qwen1, ComputesWhatQwen2Does) {
  const auto a = models::qwen::qwen1().read(config(), "config.json");
  EXPECT_TRUE(at::equal(logits(models::qwen::qwen1(), a), logits(models::qwen::qwen2(), a)));
}

}  // namespace
}  // namespace finetune::qwen1_test
