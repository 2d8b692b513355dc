#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model folder in GPTQ's 4 bits and the same model with what that leaves of its weights, made
// from a small one for tests.

#include <filesystem>

namespace finetune::tests {

struct GptqChoice {
  std::int64_t group_size = 32;  ///< -1: all inputs
  bool act_order = false;
  bool is_v2 = false;              ///< zeros as they are, not less 1
  bool has_config_beside = false;  ///< quantize_config.json instead of a part of config.json
  bool has_biases = false;         ///< of zeros, beside every matrix
};

/// Writes `packed` (model.safetensors with qweight, qzeros, scales, g_idx) and `dense` (fp32) from
/// the model folder `source`. Folders that are there are used again.
void make_gptq_models(const std::filesystem::path& source, const std::filesystem::path& packed,
                      const std::filesystem::path& dense, const GptqChoice& choice);

}  // namespace finetune::tests
