// SPDX-License-Identifier: Apache-2.0
#include "models/llama/llama.hpp"

#include <fmt/format.h>

#include "model/blocks.hpp"
#include "model/config_json.hpp"

namespace finetune::models::llama {
namespace {

using model::Architecture;

constexpr int rows_per_block = 9;

Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  Architecture a;
  a.num_layers = reader.size("num_hidden_layers");
  a.vocab_size = reader.size("vocab_size");
  a.d_model = reader.size("hidden_size");
  a.num_heads = reader.size("num_attention_heads");
  a.num_kv_heads = reader.size("num_key_value_heads", a.num_heads);
  a.d_ff = reader.size("intermediate_size");
  a.max_positions = reader.size("max_position_embeddings", 2048);
  a.norm_eps = reader.real("rms_norm_eps", 1e-6);
  a.init_std = reader.real("initializer_range", 0.02);
  a.tied_embeddings = reader.boolean("tie_word_embeddings", false);
  a.file_dtype = model::read_dtype(reader);
  model::read_rope(reader, a);
  reader.require_text("hidden_act", "silu", {"silu", "swish"});
  reader.require_false("attention_bias");
  reader.require_false("mlp_bias");
  if (!reader.has("head_dim") && a.d_model % a.num_heads != 0) {
    reader.fail("hidden_size", "is not a multiple of num_attention_heads",
                "each head has a whole size");
  }
  a.head_size = reader.size("head_dim", a.d_model / a.num_heads);
  if (a.head_size % 2 != 0)
    reader.fail("head_dim", "is odd", "rotary positions turn pairs of channels");
  if (a.num_heads % a.num_kv_heads != 0) {
    reader.fail("num_key_value_heads", "does not divide num_attention_heads",
                "query heads share keys in groups");
  }
  return a;
}

void describe_block(const Architecture& a, std::int64_t i_layer, int unit,
                    std::vector<model::Parameter>& rows) {
  const std::string prefix = fmt::format("model.layers.{}.", i_layer);
  const std::int64_t q = a.num_heads * a.head_size;
  const std::int64_t kv = a.num_kv_heads * a.head_size;
  int part = 0;  // attention, then feed-forward
  const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in) {
    rows.push_back(
        {.name = prefix + name + ".weight", .shape = {out, in}, .unit = unit, .part = part});
  };
  const auto norm = [&](const char* name) {
    rows.push_back({.name = prefix + name + ".weight",
                    .shape = {a.d_model},
                    .unit = unit,
                    .part = part,
                    .decayed = false,
                    .init = model::Init::ones});
  };
  // The order is the order in memory: q, k, v are read as one matrix, and so are gate and up.
  norm("input_layernorm");
  matrix("self_attn.q_proj", q, a.d_model);
  matrix("self_attn.k_proj", kv, a.d_model);
  matrix("self_attn.v_proj", kv, a.d_model);
  matrix("self_attn.o_proj", a.d_model, q);
  part = 1;
  norm("post_attention_layernorm");
  matrix("mlp.gate_proj", a.d_ff, a.d_model);
  matrix("mlp.up_proj", a.d_ff, a.d_model);
  matrix("mlp.down_proj", a.d_model, a.d_ff);
}

model::ParameterTable describe(const Architecture& a) {
  model::ParameterTable table;
  table.units.push_back("embedding");
  table.rows.push_back(
      {.name = "model.embed_tokens.weight", .shape = {a.vocab_size, a.d_model}, .unit = 0});
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    table.units.push_back(fmt::format("layers.{}", i));
    describe_block(a, i, static_cast<int>(i) + 1, table.rows);
  }
  const int head = static_cast<int>(table.units.size());
  table.units.push_back("head");
  table.rows.push_back({.name = "model.norm.weight",
                        .shape = {a.d_model},
                        .unit = head,
                        .decayed = false,
                        .init = model::Init::ones});
  if (!a.tied_embeddings) {
    table.rows.push_back(
        {.name = "lm_head.weight", .shape = {a.vocab_size, a.d_model}, .unit = head});
  }
  return table;
}

class Llama : public model::Model {
 public:
  explicit Llama(Architecture architecture) : architecture_(std::move(architecture)) {}

  int embedding_row() const override { return 0; }
  int final_norm_row() const override { return block_rows(architecture_.num_layers).first; }
  int head_row() const override { return architecture_.tied_embeddings ? 0 : final_norm_row() + 1; }
  model::RowRange block_rows(std::int64_t i_layer) const override {
    return {1 + rows_per_block * static_cast<int>(i_layer), rows_per_block};
  }

  at::Tensor block(model::Ops& ops, std::int64_t i_layer, const at::Tensor& x_ND,
                   const model::Sequence& sequence) const override {
    const int first = block_rows(i_layer).first;
    const model::BlockRows rows{.attention_norm = first,
                                .qkv = {first + 1, 3},
                                .attention_out = first + 4,
                                .feed_forward_norm = first + 5,
                                .gate_up = {first + 6, 2},
                                .down = first + 8};
    return model::pre_norm_block(ops, architecture_, rows, x_ND, sequence, i_layer);
  }

  at::Tensor final_norm(model::Ops& ops, const at::Tensor& x_ND) const override {
    return ops.rms_norm(x_ND, final_norm_row(), architecture_.norm_eps);
  }

 private:
  Architecture architecture_;
};

std::unique_ptr<model::Model> build(const Architecture& architecture) {
  return std::make_unique<Llama>(architecture);
}

}  // namespace

model::ModelFamily family() {
  return {"llama", {"llama"}, read, describe, build};
}

}  // namespace finetune::models::llama
