#pragma once
// SPDX-License-Identifier: Apache-2.0
// The models of tests/golden/models: one of each family at least.

#include <array>

namespace finetune::tests {

inline constexpr std::array golden_models = {"apertus",
                                             "arcee",
                                             "cohere",
                                             "cohere2",
                                             "deepseek_v2",
                                             "deepseek_v3",
                                             "ernie4_5",
                                             "exaone4",
                                             "gemma",
                                             "gemma2",
                                             "gemma3",
                                             "gemma3_text",
                                             "glm",
                                             "glm4",
                                             "glm4_moe",
                                             "glm4_moe_lite",
                                             "gpt_oss",
                                             "granite",
                                             "hunyuan_v1_dense",
                                             "internlm3",
                                             "llama",
                                             "llama4",
                                             "llama_biased",
                                             "llama_tied",
                                             "minicpm",
                                             "minimax_m2",
                                             "ministral3",
                                             "mistral",
                                             "mistral3",
                                             "nemotron",
                                             "nemotron_h",
                                             "olmo2",
                                             "olmo3",
                                             "olmoe",
                                             "phi3",
                                             "qwen2",
                                             "qwen2_moe",
                                             "qwen3",
                                             "qwen3_5",
                                             "qwen3_5_moe",
                                             "qwen3_moe",
                                             "qwen3_next",
                                             "qwen3_vl",
                                             "qwen3_vl_moe",
                                             "seed_oss",
                                             "smollm3",
                                             "starcoder2"};

}  // namespace finetune::tests
