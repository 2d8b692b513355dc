#pragma once
// SPDX-License-Identifier: Apache-2.0
// Parts of blocks as published models have them, small, for the tests of costs.

#include <gtest/gtest.h>

#include <cstdint>

#include "model/architecture.hpp"

namespace finetune::model::cost_test {

inline constexpr std::int64_t batch = 2, length = 48, tokens = batch * length;

struct Bytes {
  std::int64_t kept = 0;
  std::int64_t worst = 0;  ///< in addition
};

inline void expect_counted(const Bytes& is, const Bytes& planned) {
  EXPECT_EQ(is.kept, planned.kept);
  EXPECT_NEAR(static_cast<double>(is.worst) / static_cast<double>(planned.worst), 1, 0.05);
}

/// As gpt-oss has them.
inline constexpr Experts biased_experts{.num = 6,
                                        .top_k = 2,
                                        .d_ff = 48,
                                        .has_biases = true,
                                        .activation = {.function = Activation::Function::clamped,
                                                       .takes_turns = true,
                                                       .slope = 1.702,
                                                       .limit = 0.1}};

/// As GLM 4.5 has them.
inline constexpr Experts experts_apart{.num = 6,
                                       .top_k = 2,
                                       .d_ff = 48,
                                       .d_shared = 80,
                                       .scores_apart = true,
                                       .corrects_choice = true,
                                       .num_groups = 3,
                                       .top_k_groups = 2,
                                       .weight_scale = 2.5};

/// As DeepSeek 3 has them, whose values are shorter than queries; and as GLM 4.7 Flash might.
inline constexpr Latents short_values{
    .d_key_value = 24, .d_query = 40, .unturned = 16, .value_size = 16};
inline constexpr Latents long_values{.d_key_value = 24, .unturned = 16, .value_size = 32};

/// As Nemotron 3 has them.
inline constexpr Activation no_gate{Activation::Function::relu_squared, false};
inline constexpr Experts experts_without_gate{.num = 6,
                                              .top_k = 2,
                                              .d_ff = 48,
                                              .d_shared = 80,
                                              .scores_apart = true,
                                              .corrects_choice = true,
                                              .activation = no_gate};
inline constexpr StateHeads states{
    .num_groups = 2, .heads_per_group = 6, .head_size = 12, .state_size = 16, .taps = 4};
inline constexpr Layer states_alone{.has_state_space = true, .has_feed_forward_half = false};
inline constexpr Layer experts_alone{.has_experts = true, .has_attention_half = false};

}  // namespace finetune::model::cost_test
