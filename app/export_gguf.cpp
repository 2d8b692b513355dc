// SPDX-License-Identifier: Apache-2.0
// A model folder as one file that llama.cpp reads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "data/text/model_template.hpp"
#include "export.hpp"
#include "gguf/q8_0.hpp"
#include "gguf/writer.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "model/rope.hpp"
#include "tokenizer/tokenizer.hpp"
#include "weights/model_files.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<std::pair<std::string, gguf::Value>>;

[[noreturn]] void refuse(const fs::path& folder, const std::string& problem,
                         const std::string& why) {
  core::fail(core::ErrorKind::input,
             {folder.string(), problem, why,
              "Use the Hugging Face folder, or llama.cpp's own converter."});
}

/// How a family is called there; its queries and keys have their halves mixed, or not.
struct Target {
  std::string architecture;
  bool pairs_channels = false;
};

Target target_of(const fs::path& folder, const model::Architecture& a) {
  const bool is_plain = a.norms == model::Norms::before && a.residual_scale == 1 &&
                        a.embedding_scale == 1 && a.head_scale == 1 && a.rotary_size == 0 &&
                        a.num_layers_with_experts() == 0 && !a.attention_out_bias &&
                        !a.feed_forward_bias;
  if (is_plain && (a.family == "llama" || a.family == "mistral") && !a.qkv_bias)
    return {"llama", true};
  if (is_plain && (a.family == "qwen2" || a.family == "qwen3")) return {a.family, false};
  refuse(folder, fmt::format("models of this kind ({}) are not written as GGUF", a.family),
         "known: llama, mistral, qwen2 and qwen3 without experts and biases of their own");
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
               std::uint32_t file_type, Values& values) {
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

/// What llama.cpp calls a way to cut text, by the expression that the tokenizer's file has.
std::string splitting_of(const fs::path& folder, const core::Json& json) {
  const std::string text = json.value("pre_tokenizer", core::Json()).dump();
  if (text.find("\\\\p{N}{1,3}") != std::string::npos) return "llama-bpe";
  if (text.find("\\\\p{N}|") != std::string::npos) return "qwen2";
  if (text.find("\"Regex\"") == std::string::npos && text.find("ByteLevel") != std::string::npos)
    return "gpt-2";
  refuse(folder, "its tokenizer cuts text in a way that has no name in GGUF",
         "known: those of GPT-2, Llama 3 and Qwen 2");
}

void add_tokenizer(const fs::path& folder, std::int64_t vocab_size, Values& values) {
  constexpr std::int64_t largest_bytes = std::int64_t{1} << 28;
  const core::Json json = core::read_json(folder / "tokenizer.json", largest_bytes);
  const core::Json& model = json.at("model");
  if (model.value("type", "") != "BPE" || model.value("byte_fallback", false))
    refuse(folder, "its tokenizer is not of bytes (BPE without byte_fallback)",
           "others have scores, which its file does not tell");
  enum : std::int32_t { normal = 1, control = 3, defined = 4, unused = 5 };
  std::vector<std::string> tokens(static_cast<std::size_t>(vocab_size));
  std::vector<std::int32_t> types(tokens.size(), unused);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = fmt::format("[PAD{}]", i);
  const auto put = [&](std::int64_t id, const std::string& text, std::int32_t type) {
    if (id < 0 || id >= vocab_size)
      refuse(folder, fmt::format("token {} is beyond the model's vocabulary of {}", id, vocab_size),
             "its row would be missing");
    tokens[static_cast<std::size_t>(id)] = text;
    types[static_cast<std::size_t>(id)] = type;
  };
  for (const auto& [text, id] : model.at("vocab").items())
    put(id.get<std::int64_t>(), text, normal);
  for (const core::Json& added : json.value("added_tokens", core::Json::array()))
    put(added.at("id").get<std::int64_t>(), added.at("content").get<std::string>(),
        added.value("special", false) ? control : defined);
  std::vector<std::string> merges;
  for (const core::Json& merge : model.at("merges"))
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  values.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  values.emplace_back("tokenizer.ggml.pre", splitting_of(folder, json));
  values.emplace_back("tokenizer.ggml.tokens", std::move(tokens));
  values.emplace_back("tokenizer.ggml.token_type", std::move(types));
  values.emplace_back("tokenizer.ggml.merges", std::move(merges));
  const auto tokenizer = tokenizer::Tokenizer::load(folder);
  if (const auto eos = tokenizer.find_eos_id())
    values.emplace_back("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(*eos));
  const auto bos = tokenizer.bos_id();
  if (bos) values.emplace_back("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*bos));
  const auto ids = tokenizer.encode("a", tokenizer::Encode::document);
  values.emplace_back("tokenizer.ggml.add_bos_token", bos && !ids.empty() && ids.front() == *bos);
  const data::ModelTemplates chats = data::model_templates(folder);
  if (chats.standard) values.emplace_back("tokenizer.chat_template", *chats.standard);
  std::vector<std::string> names;
  for (const auto& [name, text] : chats.named) {
    values.emplace_back("tokenizer.chat_template." + name, text);
    names.push_back(name);
  }
  if (!names.empty()) values.emplace_back("tokenizer.chat_templates", std::move(names));
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

void export_gguf(const fs::path& folder, const fs::path& file, const std::string& dtype,
                 const train::Registry& registry) {
  const auto identified = model::identify(model::read_config(folder),
                                          (folder / "config.json").string(), registry.families);
  const model::Architecture& a = identified.architecture;
  const Target target = target_of(folder, a);
  const gguf::TensorType wanted = wanted_type(dtype);
  const model::ParameterTable table = identified.family->describe(a);
  const auto files = weights::ModelFiles::open(folder);
  Values values;
  fs::path name = folder.lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  add_shape(a, target, name.filename().string(), file_type_of(wanted), values);
  add_tokenizer(folder, a.vocab_size, values);
  const std::vector<float> factors = rope_factors(a);
  std::vector<gguf::Tensor> tensors;
  if (!factors.empty())
    tensors.push_back({"rope_freqs.weight", {std::ssize(factors)}, gguf::TensorType::f32});
  for (const model::Parameter& row : table.rows)
    tensors.push_back({name_in_file(row.name), row.shape, type_of(row, wanted)});
  gguf::Writer writer(file, values, tensors);
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
  log::info(fmt::format("{}: {} tensors of {}", file.string(), tensors.size(), folder.string()));
}

}  // namespace finetune::app
