#pragma once
// SPDX-License-Identifier: Apache-2.0
// Published speeds of training, with what their sources say about them.
//
// Sources, and what was assumed where they do not say it:
// - IBM FSDP: pytorch.org blog of 2024-03-13, table 1: 128 A100 with 400 Gb/s a node, 96 H100 with
//   800 Gb/s. Its 13B row checkpoints some blocks only and is left out.
// - torchtitan: benchmarks/llama3_h100_202412_torchtitan.md, tables 1 to 3; of tp
//   asyncTP_llama3_h100_2025-06 (vanilla) and docs/performance.md (405B); of H200
//   llama3_8b_h200_2025-06. Selective checkpointing there computes some products again. Its FP8 has
//   one scale per tensor, gathers in FP8, and all three products of a matrix.
// - MLPerf, HF + DeepSpeed: training_results_v4.0, JuniperNetworks, llama2_70b_lora.
// - torchtune: its multi-node tutorial (16 H100), README (8 A100) and documentation of memory
//   optimisations (3B, one A100; batch 4 of 4,096 assumed).
// - Qwen: QwenLM/Qwen, README, profiling: one sequence, 8 micro-batches a step; ZeRO-3 on several.
// - NeMo: performance_summary.html of 24.12; Megatron-Bridge: performance-summary-archive.md. FP8;
//   the optimizer sharded, micro-batches of one, 4 and 16 a step assumed. NeMo's samples, of SQuAD,
//   are packed: of 240 tokens, assumed.
// - fsdp_qlora: benchmarks_03_2024.md, its last table.
// - llm.c: its discussions 481 and 677; micro-batches of 64 and 16 assumed.
// A first guess of the machines' rates was 15 to 35 % too fast nearly everywhere; they were lowered
// until the rows marked `rate` came out, with the others in sight. What is missed: short sequences
// of Python programs, which start operations too slowly to keep a GPU busy; one node of DeepSpeed,
// which is slower a GPU than four; two GPUs of ZeRO-3; one sequence a GPU on two A100 of 40 GB;
// context parallelism over 4 and 8 ranks and tensor parallelism of an 8B in torchtitan, which wait
// for messages that this program sends beside computation. Rows of pipeline parallelism are not
// here: the program has none.

#include <vector>

#include "plan/time/time.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::tests {

/// How the plan and a row stand to each other.
struct Use {
  bool sets_rates = false;  ///< the machine's rates were chosen with it
  double missed = 1;        ///< by this factor, faster or slower; 1: within 25 %
};
constexpr Use predicted = {}, rate = {true, 1};
constexpr Use missed(double factor) {
  return {false, factor};
}

struct Published {
  const char* system;
  const char* what;
  const char* machine;  ///< "fp8": of this folder
  Size size;
  Training training;
  std::int64_t ranks;  ///< on nodes of eight
  std::int64_t micro_batch, length, accumulation;
  plan::ActivationCheckpointing checkpointing;
  plan::Passes passes;
  const char* sharding;
  double inter_gb_per_s;  ///< 94 % of the network that the source names; 0: the machine's
  double tokens_per_s;    ///< of a rank
  Use use = predicted;
  std::int64_t tp = 1, cp = 1;
  std::int64_t sample_tokens = 0;  ///< of packed samples, see plan::PlanInput
  bool is_fp8 = false;             ///< precision.mode = "fp8-mixed"
};

inline const std::vector<Published>& published_rows() {
  using enum plan::Passes;
  using enum plan::ActivationCheckpointing;
  constexpr auto nf4 = model::Packing::Kind::nf4;
  constexpr Size llama_2_7b = {32, 4096, 32, 32, 128, 11008, 32000};
  constexpr Size llama_2_34b = {48, 8192, 64, 8, 128, 22016, 32000};
  constexpr Size llama_2_70b = {80, 8192, 64, 8, 128, 28672, 32000};
  constexpr Size llama_3_3b = {28, 3072, 24, 8, 128, 8192, 128256};
  constexpr Size llama_3_8b = {32, 4096, 32, 8, 128, 14336, 128256};
  constexpr Size llama_3_70b = {80, 8192, 64, 8, 128, 28672, 128256};
  constexpr Size llama_3_405b = {126, 16384, 128, 8, 128, 53248, 128256};
  constexpr Size qwen_7b = {32, 4096, 32, 32, 128, 11008, 151936};
  constexpr Size qwen_14b = {40, 5120, 40, 40, 128, 13696, 152064};
  constexpr Size qwen_72b = {80, 8192, 64, 64, 128, 24576, 152064};
  // Two matrices of four times the width, as wide as three of 8/3.
  constexpr Size gpt_2_124m = {12, 768, 12, 12, 64, 2048, 50304};
  constexpr Size gpt_2_1558m = {48, 1600, 25, 25, 64, 4267, 50304};
  constexpr Training full_training = {}, lora_attention = {16, true}, lora_8 = {8}, lora_64 = {64},
                     qlora_8 = {8, false, nf4}, qlora_64 = {64, false, nf4};
  static const std::vector<Published> rows = {
      {"IBM FSDP", "7B", "a100-80-8", llama_2_7b, full_training, 128, 2, 4096, 1, none, composed,
       "FULL_SHARD", 47, 3700},
      {"IBM FSDP", "34B", "a100-80-8", llama_2_34b, full_training, 128, 2, 4096, 1, full, composed,
       "FULL_SHARD", 47, 700, rate},
      {"IBM FSDP", "70B", "a100-80-8", llama_2_70b, full_training, 128, 2, 4096, 1, full, composed,
       "FULL_SHARD", 47, 370},
      {"IBM FSDP", "7B", "h100-8", llama_2_7b, full_training, 96, 2, 4096, 1, none, composed,
       "FULL_SHARD", 94, 7500},
      {"IBM FSDP", "34B", "h100-8", llama_2_34b, full_training, 96, 2, 4096, 1, full, composed,
       "FULL_SHARD", 94, 1550},
      {"IBM FSDP", "70B", "h100-8", llama_2_70b, full_training, 96, 2, 4096, 1, full, composed,
       "FULL_SHARD", 94, 800, rate},
      {"torchtitan", "8B", "h100-96-8", llama_3_8b, full_training, 8, 2, 8192, 1, selective,
       composed, "FULL_SHARD", 0, 5762},
      {"torchtitan", "8B, compiled", "h100-96-8", llama_3_8b, full_training, 8, 2, 8192, 1,
       selective, fused, "FULL_SHARD", 0, 6667, rate},
      {"torchtitan", "8B", "h100-96-8", llama_3_8b, full_training, 128, 2, 8192, 1, selective,
       composed, "FULL_SHARD", 0, 5605},
      {"torchtitan", "8B, compiled", "h100-96-8", llama_3_8b, full_training, 128, 2, 8192, 1,
       selective, fused, "FULL_SHARD", 0, 6514},
      {"torchtitan", "70B, compiled, tp", "h100-96-8", llama_3_70b, full_training, 256, 16, 8192, 1,
       full, fused, "FULL_SHARD", 0, 597.3, predicted, 8},
      {"torchtitan", "8B, compiled, tp", "h100-96-8", llama_3_8b, full_training, 64, 12, 8192, 1,
       selective, fused, "FULL_SHARD", 0, 4378, missed(1.27), 8},
      {"torchtitan", "405B, tp", "h100-96-8", llama_3_405b, full_training, 128, 2, 8192, 1, full,
       composed, "FULL_SHARD", 0, 109, predicted, 8},
      {"torchtitan", "8B, compiled, FP8", "h100-96-8", llama_3_8b, full_training, 8, 2, 8192, 1,
       selective, fused, "FULL_SHARD", 0, 8532, predicted, 1, 1, 0, true},
      {"torchtitan", "8B, compiled, FP8", "h100-96-8", llama_3_8b, full_training, 128, 2, 8192, 1,
       selective, fused, "FULL_SHARD", 0, 8380, predicted, 1, 1, 0, true},
      {"torchtitan", "8B, 32K, FP8", "h100-96-8", llama_3_8b, full_training, 8, 1, 32768, 1, full,
       fused, "FULL_SHARD", 0, 3890, predicted, 1, 1, 0, true},
      {"torchtitan", "8B, 64K, cp, FP8", "h100-96-8", llama_3_8b, full_training, 8, 1, 65536, 1,
       full, fused, "FULL_SHARD", 0, 2540, predicted, 1, 2, 0, true},
      {"torchtitan", "8B, 128K, cp, FP8", "h100-96-8", llama_3_8b, full_training, 8, 1, 131072, 1,
       full, fused, "FULL_SHARD", 0, 1071, missed(1.37), 1, 4, 0, true},
      {"torchtitan", "8B, 256K, cp, FP8", "h100-96-8", llama_3_8b, full_training, 8, 1, 262144, 1,
       full, fused, "FULL_SHARD", 0, 548, missed(1.46), 1, 8, 0, true},
      {"torchtitan", "8B, FP8", "h200-8", llama_3_8b, full_training, 32, 2, 8192, 1, selective,
       fused, "FULL_SHARD", 0, 10938, predicted, 1, 1, 0, true},
      {"MLPerf, HF + DeepSpeed", "70B LoRA", "h100-8", llama_2_70b, lora_attention, 8, 1, 8192, 1,
       full, composed, "FULL_SHARD", 0, 646, missed(1.44)},
      {"MLPerf, HF + DeepSpeed", "70B LoRA", "h100-8", llama_2_70b, lora_attention, 32, 1, 8192, 1,
       full, composed, "FULL_SHARD", 0, 833},
      {"MLPerf, HF + DeepSpeed", "70B LoRA", "a100-80-8", llama_2_70b, lora_attention, 64, 1, 8192,
       1, full, composed, "FULL_SHARD", 0, 387},
      {"torchtune", "70B full", "h100-8", llama_3_70b, full_training, 16, 4, 1024, 1, full,
       composed, "FULL_SHARD", 0, 880},
      {"torchtune", "70B LoRA", "a100-80-8", llama_3_70b, lora_8, 8, 2, 2048, 1, full, fused,
       "FULL_SHARD", 0, 437},
      {"Qwen", "7B LoRA 256", "a100-80-8", qwen_7b, lora_64, 1, 1, 256, 8, full, composed,
       "NO_SHARD", 0, 1706.7, missed(2.06)},
      {"Qwen", "7B LoRA 512", "a100-80-8", qwen_7b, lora_64, 1, 1, 512, 8, full, composed,
       "NO_SHARD", 0, 2730.7, missed(1.33)},
      {"Qwen", "7B LoRA 1024", "a100-80-8", qwen_7b, lora_64, 1, 1, 1024, 8, full, composed,
       "NO_SHARD", 0, 2925.7},
      {"Qwen", "7B LoRA 2048", "a100-80-8", qwen_7b, lora_64, 1, 1, 2048, 8, full, composed,
       "NO_SHARD", 0, 3150.8},
      {"Qwen", "7B LoRA 4096", "a100-80-8", qwen_7b, lora_64, 1, 1, 4096, 8, full, composed,
       "NO_SHARD", 0, 3244.4},
      {"Qwen", "7B LoRA 8192", "a100-80-8", qwen_7b, lora_64, 1, 1, 8192, 8, full, composed,
       "NO_SHARD", 0, 3076.8},
      {"Qwen", "7B QLoRA 8192", "a100-80-8", qwen_7b, qlora_64, 1, 1, 8192, 8, full, composed,
       "NO_SHARD", 0, 2938.8},
      {"Qwen", "14B LoRA 256", "a100-80-8", qwen_14b, lora_64, 1, 1, 256, 8, full, composed,
       "NO_SHARD", 0, 1280, missed(1.55)},
      {"Qwen", "14B LoRA 8192", "a100-80-8", qwen_14b, lora_64, 1, 1, 8192, 8, full, composed,
       "NO_SHARD", 0, 1820.4},
      {"Qwen", "14B QLoRA 8192", "a100-80-8", qwen_14b, qlora_64, 1, 1, 8192, 8, full, composed,
       "NO_SHARD", 0, 1711.1},
      {"Qwen", "72B LoRA 256", "a100-80-8", qwen_72b, lora_64, 4, 1, 256, 8, full, composed,
       "FULL_SHARD", 0, 116.4, missed(2.25)},
      {"Qwen", "72B LoRA 8192", "a100-80-8", qwen_72b, lora_64, 4, 1, 8192, 8, full, composed,
       "FULL_SHARD", 0, 405.8},
      {"Qwen", "72B QLoRA 8192", "a100-80-8", qwen_72b, qlora_64, 1, 1, 8192, 8, full, composed,
       "NO_SHARD", 0, 364.5},
      {"Qwen", "7B full", "a100-80-8", qwen_7b, full_training, 2, 1, 1024, 8, full, composed,
       "FULL_SHARD", 0, 1820.4, missed(1.47)},
      {"NeMo", "7B SFT", "fp8", llama_2_7b, full_training, 8, 1, 4096, 4, none, fused,
       "SHARD_GRAD_OP", 0, 16891, rate, 1, 1, 240},
      {"NeMo", "7B LoRA", "fp8", llama_2_7b, lora_attention, 8, 1, 4096, 4, none, fused,
       "SHARD_GRAD_OP", 0, 24824, predicted, 1, 1, 240},
      {"Megatron-Bridge", "8B", "fp8", llama_3_8b, full_training, 8, 1, 8192, 16, none, fused,
       "SHARD_GRAD_OP", 0, 14451},
      {"fsdp_qlora", "70B", "h100-8", llama_2_70b, qlora_64, 4, 8, 2048, 1, full, composed,
       "FULL_SHARD", 0, 786},
      {"fsdp_qlora", "70B", "a100-40-8", llama_2_70b, qlora_64, 8, 4, 2048, 1, full, composed,
       "FULL_SHARD", 0, 390.1, rate},
      {"fsdp_qlora", "70B", "a100-40-8", llama_2_70b, qlora_64, 4, 4, 2048, 1, full, composed,
       "FULL_SHARD", 0, 414.1},
      {"fsdp_qlora", "70B", "a100-40-8", llama_2_70b, qlora_64, 2, 1, 2048, 1, full, composed,
       "FULL_SHARD", 0, 320, missed(1.41)},
      {"llm.c", "124M", "a100-80-8", gpt_2_124m, full_training, 8, 64, 1024, 1, none, fused,
       "SHARD_GRAD_OP", 0, 218750},
      {"llm.c", "1558M", "h100-8", gpt_2_1558m, full_training, 8, 16, 1024, 1, selective, fused,
       "SHARD_GRAD_OP", 0, 46750},
      {"torchtune", "3B compiled", "a100-80-8", llama_3_3b, full_training, 1, 4, 4096, 1, none,
       fused, "NO_SHARD", 0, 9174},
      {"torchtune", "3B compiled, recomputed", "a100-80-8", llama_3_3b, full_training, 1, 4, 4096,
       1, full, fused, "NO_SHARD", 0, 7210},
      {"torchtune", "3B", "a100-80-8", llama_3_3b, full_training, 1, 4, 4096, 1, none, composed,
       "NO_SHARD", 0, 7075, rate},
      {"torchtune", "3B LoRA, the same", "a100-80-8", llama_3_3b, lora_8, 1, 4, 4096, 1, full,
       fused, "NO_SHARD", 0, 8210},
      {"torchtune", "3B QLoRA, the same", "a100-80-8", llama_3_3b, qlora_8, 1, 4, 4096, 1, full,
       fused, "NO_SHARD", 0, 8035},
  };
  return rows;
}

}  // namespace finetune::tests
