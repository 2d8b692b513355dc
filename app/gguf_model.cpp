// SPDX-License-Identifier: Apache-2.0
#include "gguf_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/rope.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// What llama.cpp would compute otherwise without a word.
void require_same_positions(const fs::path& folder, const model::Architecture& a) {
  using Kind = model::RopeScaling::Kind;
  const model::RopeScaling& scaling = a.rope_scaling;
  const model::RopeScaling usual;
  if (scaling.kind == Kind::longrope)
    refuse_gguf(folder, "its positions are scaled by a factor for each pair of channels (longrope)",
                "models of the kinds that are written have none");
  const double amplitude = 1 + 0.1 * std::log(scaling.factor);
  if (scaling.kind == Kind::yarn &&
      (scaling.beta_fast != usual.beta_fast || scaling.beta_slow != usual.beta_slow ||
       !scaling.is_truncated || std::abs(scaling.amplitude - amplitude) > 1e-6))
    refuse_gguf(folder,
                "its rope_scaling has other values than usual for beta_fast, beta_slow, "
                "attention_factor or truncate",
                "readers of the file take 32, 1, 1 + log(factor) / 10 and whole channels");
  const auto differs = [](const model::Layer& layer) {
    return layer.window > 0 || layer.chunk > 0 || layer.tunes_temperature ||
           layer.rotary != model::Rotary::halves;
  };
  if (std::ranges::any_of(a.layers, differs))
    refuse_gguf(folder,
                "some of its layers see a window of positions, or have none or others of their own",
                "the file has no word for it in models of this kind");
}

/// How llama.cpp computes experts of an architecture is in its code, not in the file.
/// Source: llama.cpp, src/models/{llama,qwen3moe,olmoe}.cpp.
void require_same_experts(const fs::path& folder, const model::Architecture& a) {
  if (a.num_layers_with_experts() != a.num_layers)
    refuse_gguf(folder, "some of its layers have no experts",
                "readers of the file expect experts in every layer of a model of this kind");
  const bool normalizes = a.family != "olmoe";
  if (a.experts.normalizes != normalizes)
    refuse_gguf(folder, fmt::format("norm_topk_prob is {}", !normalizes),
                fmt::format("readers of the file {} the weights of the experts that a token takes",
                            normalizes ? "normalise" : "do not normalise"));
  if (a.family == "olmoe" && (a.num_kv_heads != a.num_heads || a.tied_embeddings))
    refuse_gguf(folder, "it has fewer key heads than heads, or its embedding is its head",
                "readers of the file expect as many, and a head of its own, of this kind");
}

}  // namespace

GgufTarget gguf_target_of(const fs::path& folder, const model::Architecture& a) {
  const bool has_experts = a.num_layers_with_experts() > 0;
  const bool is_plain = !a.outputs.are_of_texts() && a.norms == model::Norms::before &&
                        a.residual_scale == 1 && a.embedding_scale == 1 && a.head_scale == 1 &&
                        a.rotary_size == 0 && !a.attention_out_bias && !a.feed_forward_bias &&
                        a.activation.is_swiglu();
  const auto is = [&](const char* family, bool with_experts) {
    return a.family == family && has_experts == with_experts;
  };
  if (a.outputs.are_of_texts())
    refuse_gguf(folder, "its head says labels or scores of whole texts",
                "readers of the file go on with a text");
  GgufTarget target;
  if ((is("llama", false) || is("mistral", false) || is("mixtral", true)) && !a.qkv_bias)
    target = {"llama", true};
  else if (is("qwen2", false) || is("qwen3", false) || is("olmoe", true))
    target = {a.family};
  else if (a.family == "qwen3_moe")
    target = {has_experts ? "qwen3moe" : "qwen3"};
  if (!is_plain || target.architecture.empty())
    refuse_gguf(folder, fmt::format("models of this kind ({}) are not written as GGUF", a.family),
                "known: llama, mistral, mixtral, olmoe, qwen2, qwen3 and qwen3_moe, without biases "
                "of their own");
  require_same_positions(folder, a);
  if (has_experts) require_same_experts(folder, a);
  return target;
}

void add_gguf_model(const model::Architecture& a, const GgufTarget& target, const std::string& name,
                    std::uint32_t file_type, GgufValues& values) {
  const auto key = [&](const char* of) { return target.architecture + "." + of; };
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  values.insert(values.end(),
                {{"general.architecture", target.architecture},
                 {"general.type", std::string("model")},
                 {"general.name", name},
                 {"general.file_type", file_type},
                 {"general.quantization_version", std::uint32_t{2}},
                 {key("block_count"), number(a.num_layers)},
                 {key("context_length"), number(a.max_positions)},
                 {key("embedding_length"), number(a.d_model)},
                 {key("feed_forward_length"), number(a.d_ff)},
                 {key("attention.head_count"), number(a.num_heads)},
                 {key("attention.head_count_kv"), number(a.num_kv_heads)},
                 {key("attention.key_length"), number(a.head_size)},
                 {key("attention.value_length"), number(a.head_size)},
                 {key("attention.layer_norm_rms_epsilon"), static_cast<float>(a.norm_eps)},
                 {key("rope.freq_base"), static_cast<float>(a.rope_theta)},
                 {key("rope.dimension_count"), number(a.head_size)},
                 {key("vocab_size"), number(a.vocab_size)}});
  if (a.num_layers_with_experts() > 0)
    values.insert(values.end(), {{key("expert_count"), number(a.experts.num)},
                                 {key("expert_used_count"), number(a.experts.top_k)},
                                 {key("expert_feed_forward_length"), number(a.experts.d_ff)}});
  using Kind = model::RopeScaling::Kind;
  const model::RopeScaling& scaling = a.rope_scaling;
  if (scaling.kind == Kind::linear || scaling.kind == Kind::yarn) {
    values.emplace_back(key("rope.scaling.type"),
                        std::string(scaling.kind == Kind::yarn ? "yarn" : "linear"));
    values.emplace_back(key("rope.scaling.factor"), static_cast<float>(scaling.factor));
  }
  if (scaling.kind == Kind::yarn)
    values.emplace_back(key("rope.scaling.original_context_length"),
                        number(scaling.original_max_positions));
}

std::vector<float> gguf_rope_factors(const model::Architecture& a) {
  if (a.rope_scaling.kind != model::RopeScaling::Kind::llama3) return {};
  model::Positions plain = a.positions();
  plain.scaling = {};
  const auto before = model::rope_frequencies(plain, a.head_size);
  std::vector<float> factors = model::rope_frequencies(a.positions(), a.head_size);
  for (std::size_t i = 0; i < factors.size(); ++i)
    factors[i] = before[i] / factors[i];
  return factors;
}

}  // namespace finetune::app
