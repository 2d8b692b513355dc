// SPDX-License-Identifier: Apache-2.0
// A model folder as one file that llama.cpp reads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "export.hpp"
#include "gguf/q8_0.hpp"
#include "gguf/writer.hpp"
#include "gguf_tokenizer.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "model/rope.hpp"
#include "weights/model_files.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;
/// How a family is called there; its queries and keys have their halves mixed, or not.
struct Target {
  std::string architecture;
  bool pairs_channels = false;
};

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

Target target_of(const fs::path& folder, const model::Architecture& a) {
  const bool is_plain = !a.outputs.are_of_texts() && a.norms == model::Norms::before &&
                        a.residual_scale == 1 && a.embedding_scale == 1 && a.head_scale == 1 &&
                        a.rotary_size == 0 && a.num_layers_with_experts() == 0 &&
                        !a.attention_out_bias && !a.feed_forward_bias;
  const bool is_llama = (a.family == "llama" || a.family == "mistral") && !a.qkv_bias;
  if (!is_plain || (!is_llama && a.family != "qwen2" && a.family != "qwen3"))
    refuse_gguf(folder, fmt::format("models of this kind ({}) are not written as GGUF", a.family),
                "known: llama, mistral, qwen2 and qwen3 without experts and biases of their own");
  require_same_positions(folder, a);
  if (is_llama) return {"llama", true};
  return {a.family, false};
}

std::string name_in_file(const std::string& name) {
  static const std::array<std::pair<std::string_view, std::string_view>, 13> parts = {
      {{"input_layernorm", "attn_norm"},
       {"self_attn.q_proj", "attn_q"},
       {"self_attn.k_proj", "attn_k"},
       {"self_attn.v_proj", "attn_v"},
       {"self_attn.o_proj", "attn_output"},
       {"self_attn.q_norm", "attn_q_norm"},
       {"self_attn.k_norm", "attn_k_norm"},
       {"post_attention_layernorm", "ffn_norm"},
       {"mlp.gate_proj", "ffn_gate"},
       {"mlp.up_proj", "ffn_up"},
       {"mlp.down_proj", "ffn_down"}}};
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view layers = "model.layers.";
  const std::size_t dot = name.find('.', layers.size()), last = name.rfind('.');
  core::check(name.starts_with(layers) && dot != std::string::npos, "a row is of a block");
  const std::string part = name.substr(dot + 1, last - dot - 1);
  for (const auto& [from, to] : parts)
    if (!from.empty() && part == from)
      return fmt::format("blk.{}.{}{}", name.substr(layers.size(), dot - layers.size()), to,
                         name.substr(last));
  core::check(false, "every row of a plain block has a name in the file");
  return "";
}

gguf::TensorType type_of(const model::Parameter& row, gguf::TensorType wanted) {
  if (row.shape.size() < 2) return gguf::TensorType::f32;
  if (wanted == gguf::TensorType::q8_0 && row.shape.back() % gguf::q8_0_together != 0)
    return gguf::TensorType::f16;
  return wanted;
}

/// Rows of each head: channel i and i + K / 2 become neighbours.
void pair_channels(std::vector<float>& values, std::int64_t head_size, std::int64_t width) {
  const std::vector<float> from = values;
  const auto num_rows = static_cast<std::int64_t>(values.size()) / width;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t head = row / head_size, i = row % head_size;
    const std::int64_t source = head * head_size + i / 2 + i % 2 * head_size / 2;
    std::copy_n(from.begin() + source * width, width, values.begin() + row * width);
  }
}

std::vector<std::byte> bytes_of(const std::vector<float>& values, gguf::TensorType type) {
  if (type == gguf::TensorType::q8_0) return gguf::q8_0(values);
  const std::span<const std::byte> all = std::as_bytes(std::span(values));
  if (type == gguf::TensorType::f32) return {all.begin(), all.end()};
  std::vector<std::byte> bytes(values.size() * 2);
  auto* out = reinterpret_cast<std::uint16_t*>(bytes.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    out[i] = type == gguf::TensorType::f16 ? core::float_to_f16(values[i])
                                           : core::float_to_bf16(values[i]);
  return bytes;
}

/// Factors that Llama 3.1's long wavelengths are divided by.
std::vector<float> rope_factors(const model::Architecture& a) {
  if (a.rope_scaling.kind != model::RopeScaling::Kind::llama3) return {};
  model::Positions plain = a.positions();
  plain.scaling = {};
  const auto before = model::rope_frequencies(plain, a.head_size);
  std::vector<float> factors = model::rope_frequencies(a.positions(), a.head_size);
  for (std::size_t i = 0; i < factors.size(); ++i)
    factors[i] = before[i] / factors[i];
  return factors;
}

void add_shape(const model::Architecture& a, const Target& target, const std::string& name,
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

gguf::TensorType wanted_type(const std::string& dtype) {
  if (dtype.empty() || dtype == "f16" || dtype == "float16") return gguf::TensorType::f16;
  if (dtype == "bf16" || dtype == "bfloat16") return gguf::TensorType::bf16;
  if (dtype == "f32" || dtype == "float32") return gguf::TensorType::f32;
  if (dtype == "q8_0") return gguf::TensorType::q8_0;
  core::fail(core::ErrorKind::command_line,
             {"finetune export", fmt::format("--dtype is {}", dtype),
              "GGUF files are written in f16, bf16, f32 and q8_0", "Use one of these."});
}

std::uint32_t file_type_of(gguf::TensorType type) {
  constexpr std::uint32_t all_f32 = 0, mostly_f16 = 1, mostly_q8_0 = 7, mostly_bf16 = 32;
  return type == gguf::TensorType::f32    ? all_f32
         : type == gguf::TensorType::f16  ? mostly_f16
         : type == gguf::TensorType::q8_0 ? mostly_q8_0
                                          : mostly_bf16;
}

}  // namespace

bool is_gguf(const std::string& file) {
  return file.ends_with(".gguf");
}

void require_new(const GgufFile& out) {
  wanted_type(out.dtype);
  gguf::require_new(out.file);
}

void export_gguf(const fs::path& folder, const GgufFile& out, const train::Registry& registry) {
  const auto identified = model::identify(model::read_config(folder),
                                          (folder / "config.json").string(), registry.families);
  const model::Architecture& a = identified.architecture;
  const Target target = target_of(folder, a);
  const gguf::TensorType wanted = wanted_type(out.dtype);
  const model::ParameterTable table = identified.family->describe(a);
  const auto files = weights::ModelFiles::open(folder);
  GgufValues values;
  fs::path name = folder.lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  add_shape(a, target, out.name.empty() ? name.filename().string() : out.name, file_type_of(wanted),
            values);
  add_gguf_tokenizer(folder, a.vocab_size, values);
  const std::vector<float> factors = rope_factors(a);
  std::vector<gguf::Tensor> tensors;
  if (!factors.empty())
    tensors.push_back({"rope_freqs.weight", {std::ssize(factors)}, gguf::TensorType::f32});
  for (const model::Parameter& row : table.rows)
    tensors.push_back({name_in_file(row.name), row.shape, type_of(row, wanted)});
  gguf::Writer writer(out.file, values, tensors);
  if (!factors.empty()) writer.add(std::as_bytes(std::span(factors)));
  for (const model::Parameter& row : table.rows) {
    std::vector<float> read(static_cast<std::size_t>(row.count()));
    files.read({.name = row.name,
                .shape = row.shape,
                .dtype = core::DType::f32,
                .offset = 0,
                .count = row.count()},
               std::as_writable_bytes(std::span(read)));
    const bool turns = row.name.find(".q_proj.") != std::string::npos ||
                       row.name.find(".k_proj.") != std::string::npos;
    if (target.pairs_channels && turns)
      pair_channels(read, a.head_size, row.shape.size() > 1 ? row.shape[1] : 1);
    writer.add(bytes_of(read, type_of(row, wanted)));
  }
  writer.finish();
  log::info(fmt::format("wrote {}: {} tensors, {}", out.file.string(), tensors.size(),
                        core::human_bytes(static_cast<std::int64_t>(fs::file_size(out.file)))));
}

}  // namespace finetune::app
