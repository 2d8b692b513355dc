// SPDX-License-Identifier: Apache-2.0
// A model folder as one file that llama.cpp reads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "export.hpp"
#include "gguf/q8_0.hpp"
#include "gguf/writer.hpp"
#include "gguf_model.hpp"
#include "gguf_tokenizer.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "model_folders.hpp"
#include "train/input/described_model.hpp"
#include "weights/model_files.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;
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
  if (row.shape.size() < 2 || row.role == model::Role::router) return gguf::TensorType::f32;
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

/// fp16 ends at 65504: rounding beyond would put an infinity into the file without a word.
void require_range(const std::vector<float>& values, const std::string& name) {
  constexpr float overflow = 65520;  // the first value that rounds to infinity
  const auto found = std::ranges::find_if(
      values, [](float value) { return std::isfinite(value) && std::abs(value) >= overflow; });
  if (found == values.end()) return;
  core::fail(core::ErrorKind::numbers,
             {name, fmt::format("holds {:.6g}", *found), "float16 ends at 65504",
              "Write the file with --dtype bfloat16."});
}

std::vector<std::byte> bytes_of(const std::vector<float>& values, gguf::TensorType type,
                                const std::string& name) {
  if (type == gguf::TensorType::f16) require_range(values, name);
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

/// A tensor of the file, and the rows that lie in it one after the other.
struct Stack {
  gguf::Tensor tensor;
  std::vector<int> rows;
};

/// Routers, and the matrices of all experts of a layer, by the first row of each.
std::map<int, Stack> expert_stacks(const model::ParameterTable& table) {
  std::map<int, Stack> stacks;
  for (std::size_t i = 0; i < table.decoder.blocks.size(); ++i) {
    const model::ExpertRows& experts = table.decoder.blocks[i].experts;
    if (experts.stride == 0) continue;
    const auto name = [&](const char* part) { return fmt::format("blk.{}.{}.weight", i, part); };
    const int gate = experts.gate_up.first;
    stacks[experts.router] = {{name("ffn_gate_inp"), table.row(experts.router).shape},
                              {experts.router}};
    const std::pair<int, const char*> parts[] = {
        {gate, "ffn_gate_exps"}, {gate + 1, "ffn_up_exps"}, {experts.down, "ffn_down_exps"}};
    for (const auto& [first, part] : parts) {
      const std::int64_t num = table.row(first).of_experts->total;
      Stack stack{{name(part), table.row(first).shape}, {}};
      stack.tensor.shape.insert(stack.tensor.shape.begin(), num);
      for (int expert = 0; expert < static_cast<int>(num); ++expert)
        stack.rows.push_back(first + expert * experts.stride);
      stacks[first] = std::move(stack);
    }
  }
  return stacks;
}

std::vector<Stack> stacks_of(const model::ParameterTable& table, gguf::TensorType wanted) {
  std::map<int, Stack> of_experts = expert_stacks(table);
  std::vector<Stack> stacks;
  for (int i = 0; i < static_cast<int>(table.rows.size()); ++i) {
    const model::Parameter& row = table.row(i);
    const auto found = of_experts.find(i);
    if (found != of_experts.end())
      stacks.push_back(std::move(found->second));
    else if (row.role != model::Role::expert)
      stacks.push_back({{name_in_file(row.name), row.shape}, {i}});
    else
      continue;
    stacks.back().tensor.type = type_of(row, wanted);
  }
  return stacks;
}

/// The numbers of a row, with channels in the order of the file.
std::vector<float> values_of(const weights::ModelFiles& files, const model::Parameter& row,
                             const model::Architecture& a, const GgufTarget& target) {
  std::vector<float> values(static_cast<std::size_t>(row.count()));
  files.read({.name = row.name,
              .shape = row.shape,
              .dtype = core::DType::f32,
              .offset = 0,
              .count = row.count()},
             std::as_writable_bytes(std::span(values)));
  const bool turns = row.name.find(".q_proj.") != std::string::npos ||
                     row.name.find(".k_proj.") != std::string::npos;
  if (target.pairs_channels && turns)
    pair_channels(values, a.head_size, row.shape.size() > 1 ? row.shape[1] : 1);
  return values;
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
  const train::DescribedModel described = train::describe_model({}, folder, registry);
  const model::Architecture& a = described.architecture;
  if (!described.quantization.packing.is_dense())
    core::fail(core::ErrorKind::input,
               {folder.string(), "is quantised", "matrices of the file are made of whole numbers",
                "Name the model that it was made of, or export the run with --merge."});
  const GgufTarget target = gguf_target_of(folder, a);
  const gguf::TensorType wanted = wanted_type(out.dtype);
  const model::ParameterTable& table = described.parameters;
  const auto files = weights::ModelFiles::open(folder);
  GgufValues values;
  const std::string name = without_last_slash(folder).filename().string();
  add_gguf_model(a, target, out.name.empty() ? name : out.name, file_type_of(wanted), values);
  add_gguf_tokenizer(folder, a.vocab_size, values);
  const std::vector<float> factors = gguf_rope_factors(a);
  const std::vector<Stack> stacks = stacks_of(table, wanted);
  std::vector<gguf::Tensor> tensors;
  if (!factors.empty())
    tensors.push_back({"rope_freqs.weight", {std::ssize(factors)}, gguf::TensorType::f32});
  for (const Stack& stack : stacks)
    tensors.push_back(stack.tensor);
  gguf::Writer writer(out.file, values, tensors);
  if (!factors.empty()) writer.add(std::as_bytes(std::span(factors)));
  for (const Stack& stack : stacks)
    for (const int row : stack.rows)
      writer.add(bytes_of(values_of(files, table.row(row), a, target), stack.tensor.type,
                          table.row(row).name));
  writer.finish();
  log::info(fmt::format("wrote {}: {} tensors, {}", out.file.string(), tensors.size(),
                        core::human_bytes(static_cast<std::int64_t>(fs::file_size(out.file)))));
}

}  // namespace finetune::app
