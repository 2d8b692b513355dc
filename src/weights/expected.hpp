#pragma once
// SPDX-License-Identifier: Apache-2.0
// Do the files hold the model that config.json describes?

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weights/model_files.hpp"

namespace finetune::weights {

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< a size of -1 may be any
  /// May be absent and is ignored where present: the head of a model with tied embeddings.
  bool optional = false;
};

/// Compares names and shapes with what the model needs. Buffers that older programs saved though
/// they can be computed (`...rotary_emb.inv_freq`) are skipped.
/// Throws: one ErrorKind::input with all missing, unexpected and misshapen tensors, ten of each,
/// and for a missing one the unexpected one that may be meant. `config_path` is named in it. Names
/// that begin as one of `foreign` does are skipped.
void check(const ModelFiles& files, std::span<const ExpectedTensor> expected,
           const std::string& config_path, std::span<const std::string> foreign = {});

/// What a message says in addition to the differences.
struct Reason {
  std::string why;
  std::string remedy;
};

/// The same for files that no config.json describes.
void check(const ModelFiles& files, std::span<const ExpectedTensor> expected, const Reason& reason,
           std::span<const std::string> foreign = {});

}  // namespace finetune::weights
