// SPDX-License-Identifier: Apache-2.0
#include "model/names.hpp"

#include <string_view>

namespace finetune::model {
namespace {

/// Parts of names, and what transformers 5 has in their place once it has read the files. Source:
/// conversion_mapping.py in transformers, and the modules of GPT-NeoX.
struct Renamed {
  std::string_view in_files;
  std::string_view in_transformers;
  bool before_number = false;  ///< where a number follows alone
};
constexpr Renamed renamed_parts[] = {
    {"embed_out.", "lm_head."},  // GPT-NeoX
    {"backbone.", "model."},     // Nemotron-H
    // Granite's mixtures
    {"block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"},
    {"block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"},
    {"block_sparse_moe.router.layer.", "block_sparse_moe.router."},
    // Mixtral's and MiniMax's, whose experts lie one by one in the files
    {"block_sparse_moe.gate.", "mlp.gate."},
    {"block_sparse_moe.e_score_correction_bias", "mlp.e_score_correction_bias"},
    {"block_sparse_moe.experts.", "mlp.experts.", true},
};

bool holds(const std::string& tensor, const Renamed& renamed, std::size_t at) {
  if (at == std::string::npos || (at > 0 && tensor[at - 1] != '.')) return false;
  const std::string_view next = std::string_view(tensor).substr(at + renamed.in_files.size());
  return !renamed.before_number || (!next.empty() && next.front() >= '0' && next.front() <= '9');
}

}  // namespace

std::string module_of(const std::string& tensor) {
  for (const std::string_view ending : {".weight", ".bias"})
    if (tensor.ends_with(ending)) return tensor.substr(0, tensor.size() - ending.size());
  return tensor;
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

std::string name_in_transformers(const std::string& tensor) {
  for (const Renamed& renamed : renamed_parts) {
    const std::size_t at = tensor.find(renamed.in_files);
    if (!holds(tensor, renamed, at)) continue;
    std::string name = tensor;
    return name.replace(at, renamed.in_files.size(), renamed.in_transformers);
  }
  return tensor;
}

std::vector<std::string> module_names(const std::string& tensor) {
  std::vector<std::string> names = {module_of(tensor)};
  const std::string other = module_of(name_in_transformers(tensor));
  if (other != names.front()) names.push_back(other);
  return names;
}

}  // namespace finetune::model
