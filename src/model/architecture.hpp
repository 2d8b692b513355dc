#pragma once
// SPDX-License-Identifier: Apache-2.0
// The numbers that say what a model is, whatever family it belongs to.

#include <cstdint>
#include <string>

#include "core/dtype.hpp"

namespace finetune::model {

/// How rotary frequencies are stretched for long contexts.
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;   ///< llama3: wavelengths above original / low are divided by factor
  double high_freq_factor = 4;  ///< llama3: wavelengths below original / high stay
  std::int64_t original_max_positions = 8192;  ///< llama3: context the model was first trained on
};

/// A decoder-only transformer. Letters as in the design: V vocabulary, D model, H heads, K head
/// size, F feed-forward.
struct Architecture {
  std::string family;
  std::int64_t num_layers = 0;
  std::int64_t vocab_size = 0;    ///< V, rows of the embedding
  std::int64_t d_model = 0;       ///< D
  std::int64_t num_heads = 0;     ///< H
  std::int64_t num_kv_heads = 0;  ///< heads of keys and values; divides num_heads
  std::int64_t head_size = 0;     ///< K
  std::int64_t d_ff = 0;          ///< F
  std::int64_t max_positions = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  double init_std = 0.02;                     ///< of weights made from random numbers
  core::DType file_dtype = core::DType::f32;  ///< of an export when the source files do not tell
};

}  // namespace finetune::model
