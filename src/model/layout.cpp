// SPDX-License-Identifier: Apache-2.0
#include "model/layout.hpp"

#include "model/detail/combinations.hpp"
#include "model/detail/delta_layout.hpp"
#include "model/detail/latent_layout.hpp"
#include "model/detail/state_layout.hpp"
#include "model/sides.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

namespace finetune::model {
namespace {

/// Channels of a feed-forward part: whole blocks of 4-bit codes stay together where they can.
Pieces channels(std::int64_t num) {
  constexpr std::int64_t together = 64;
  if (num % together != 0) return {num};
  return {num / together, together, together};
}

class Builder {
 public:
  Builder(const Architecture& architecture, const TensorNames& names)
      : a_(architecture), names_(names) {}

  ParameterTable build() {
    begin_unit("embedding");
    table_.decoder.embedding =
        matrix(names_.embedding, a_.vocab_size, a_.d_model, vocabulary(), Role::embedding);
    table_.decoder.hands_on = lay_out_sides(a_).exist();
    if (a_.layer_input_size > 0) add_layer_embedding();
    for (std::int64_t i = 0; i < a_.num_layers; ++i)
      add_block(i);
    begin_unit("head");
    table_.decoder.final_norm = norm(names_.final_norm);
    table_.decoder.head =
        a_.outputs.are_of_texts()
            ? matrix("score", a_.outputs.num, a_.d_model, std::nullopt, Role::head)
        : a_.tied_embeddings
            ? table_.decoder.embedding
            : matrix(names_.head, a_.vocab_size, a_.d_model, vocabulary(), Role::head);
    table_.outputs = a_.outputs;
    if (!a_.outputs.are_of_texts()) table_.outputs.softcap = a_.logit_softcap;
    return std::move(table_);
  }

 private:
  void add_unit(std::string name) {
    unit_ = static_cast<int>(table_.units.size());
    table_.units.push_back(std::move(name));
  }
  /// And the stage that has it.
  void begin_unit(std::string name) {
    add_unit(std::move(name));
    stage_ = next_stage_++;
    part_ = 0;
    prefix_.clear();
  }

  int add(Parameter row) {
    row.name = prefix_ + row.name;
    row.unit = unit_;
    row.part = part_;
    row.stage = stage_;
    table_.rows.push_back(std::move(row));
    return static_cast<int>(table_.rows.size()) - 1;
  }
  /// The first of them.
  int add_all(std::vector<Parameter> rows) {
    const auto first = static_cast<int>(table_.rows.size());
    for (Parameter& row : rows)
      add(std::move(row));
    return first;
  }
  int matrix(const std::string& name, std::int64_t out, std::int64_t in,
             std::optional<TensorSplit> split, Role role = Role::linear) {
    return add({.name = name + ".weight",
                .shape = {out, in},
                .is_by_inputs = names_.blocks_are_by_inputs && role == Role::linear,
                .role = role,
                .split = std::move(split)});
  }
  int vector(const std::string& name, std::int64_t size, Init init,
             std::optional<TensorSplit> split = std::nullopt) {
    return add(
        {.name = name, .shape = {size}, .decayed = false, .init = init, .split = std::move(split)});
  }
  /// Without a bias: of heads.
  int norm_weight(const std::string& name, std::int64_t size) {
    return vector(name + ".weight", size,
                  a_.norm_kind.weight_offset == 0 ? Init::ones : Init::zeros);
  }
  NormRows norm(const std::string& name) {
    NormRows rows{.weight = norm_weight(name, a_.d_model)};
    if (a_.norm_kind.has_bias) rows.bias = bias(name, a_.d_model, std::nullopt);
    return rows;
  }
  int bias(const std::string& name, std::int64_t size, std::optional<TensorSplit> split) {
    return vector(name + ".bias", size, Init::zeros, std::move(split));
  }

  /// In a unit of its own: a tied head reads the other embedding alone.
  void add_layer_embedding() {
    add_unit("layer_embedding");
    table_.decoder.layer_embedding = matrix(names_.layer_embedding, a_.vocab_size,
                                            a_.num_layers * a_.layer_input_size, vocabulary());
    table_.rows.back().role = Role::layer_embedding;
  }

  void add_block(std::int64_t i_layer) {
    begin_unit(fmt::format("layers.{}", i_layer));
    BlockRows rows;
    rows.all.first = static_cast<int>(table_.rows.size());
    if (i_layer == 0 && a_.layer_input_size > 0) {
      rows.layer_input.projection =
          matrix(names_.layer_projection, a_.num_layers * a_.layer_input_size, a_.d_model, {});
      rows.layer_input.projection_norm.weight =
          norm_weight(names_.layer_projection_norm, a_.layer_input_size);
    }
    if (i_layer == 0 && a_.learns_positions)
      rows.positions =
          add({.name = names_.positions + ".weight", .shape = {a_.max_positions, a_.d_model}});
    prefix_ = fmt::format("{}{}.", names_.layers, i_layer);
    const Layer layer = a_.layer(i_layer);
    if (layer.has_attention_half) add_attention_half(layer, rows);
    part_ = layer.has_both_halves() ? 1 : 0;
    if (layer.has_feed_forward_half) add_feed_forward_half(layer, rows);
    if (a_.layer_input_size > 0) add_layer_input(rows.layer_input);
    if (a_.scales_blocks) rows.scale = constant(names_.block_scale, {1}, Init::ones);
    rows.all.num = static_cast<int>(table_.rows.size()) - rows.all.first;
    table_.decoder.blocks.push_back(rows);
  }

  void add_layer_input(LayerInputRows& rows) {
    rows.gate = matrix(names_.layer_input_gate, a_.layer_input_size, a_.d_model, {});
    rows.out = matrix(names_.layer_input_out, a_.d_model, a_.layer_input_size, {});
    rows.added_norm = norm(names_.layer_input_norm);
  }

  void add_attention_half(const Layer& layer, BlockRows& rows) {
    if (a_.norms != Norms::after) rows.attention_norm = norm(names_.attention_norm);
    if (layer.has_delta_rule)
      add_delta_rule(rows);
    else if (layer.has_state_space)
      add_state_space(rows);
    else if (a_.latents.exist())
      add_latent_attention(rows);
    else
      add_attention(layer, rows);
    if (a_.norms != Norms::before) rows.attention_added_norm = norm(names_.attention_added_norm);
  }

  void add_feed_forward_half(const Layer& layer, BlockRows& rows) {
    if (a_.norms != Norms::after && !a_.shares_norm)
      rows.feed_forward_norm = norm(names_.feed_forward_norm);
    if (!layer.has_experts) {
      rows.feed_forward = dense_feed_forward(a_.d_ff_of(layer));
    } else {
      rows.experts = experts();
      if (a_.experts.are_beside_dense) add_dense_beside(rows);
      if (a_.experts.d_shared > 0)
        rows.feed_forward =
            names_.shared_gate_up.empty()
                ? feed_forward(a_.activation.is_gated ? &names_.shared_gate : nullptr,
                               names_.shared_up, names_.shared_down, a_.experts.d_shared)
                : joined_feed_forward(names_.shared_gate_up, names_.shared_down,
                                      a_.experts.d_shared);
      if (a_.experts.gates_shared)
        rows.experts.shared_gate =
            matrix(names_.shared_expert_gate, 1, a_.d_model, std::nullopt, Role::router);
    }
    if (a_.norms != Norms::before)
      rows.feed_forward_added_norm = norm(names_.feed_forward_added_norm);
  }

  void add_dense_beside(BlockRows& rows) {
    ExpertRows& of = rows.experts;
    of.router_norm.weight = vector(names_.router_scale, a_.d_model, Init::ones);
    of.scales = vector(names_.expert_scales, a_.experts.num, Init::ones);
    of.norm = norm(names_.experts_norm);
    of.added_norm = norm(names_.experts_added_norm);
    rows.feed_forward = dense_feed_forward(a_.d_ff);
    of.beside_added_norm = norm(names_.dense_added_norm);
  }

  void add_attention(const Layer& layer, BlockRows& rows) {
    const std::int64_t size = a_.head_size_of(layer), num_kv = a_.num_kv_heads_of(layer);
    const std::int64_t q = a_.num_heads * size, kv = num_kv * size;
    const Pieces queries{num_kv, q / num_kv, a_.num_heads / num_kv};
    const Pieces keys{num_kv, size};
    if (!names_.qkv.empty()) {
      const TensorSplit split = a_.qkv_by_key_head
                                    ? TensorSplit{0, {{num_kv, queries.size + 2 * keys.size}}}
                                    : TensorSplit{0, {queries, keys, keys}};
      rows.qkv = {matrix(names_.qkv, q + 2 * kv, a_.d_model, split), 1};
      if (a_.qkv_bias) rows.qkv_bias = {bias(names_.qkv, q + 2 * kv, split), 1};
    } else {
      const std::int64_t parts = a_.gates_attention ? 2 : 1;  // of a query
      const TensorSplit by_queries{0, {{queries.num, parts * queries.size, queries.parts}}};
      const TensorSplit by_keys{0, {keys}};
      const bool has_keys = layer.keys_of < 0, has_values = has_keys && !layer.reads_keys;
      const int num = 1 + (has_keys ? 1 : 0) + (has_values ? 1 : 0);
      rows.qkv = {matrix(names_.query, parts * q, a_.d_model, by_queries), num};
      if (has_keys) matrix(names_.key, kv, a_.d_model, by_keys);
      if (has_values) matrix(names_.value, kv, a_.d_model, by_keys);
      if (a_.qkv_bias) {
        rows.qkv_bias = {bias(names_.query, q, by_queries), num};
        if (has_keys) bias(names_.key, kv, by_keys);
        if (has_values) bias(names_.value, kv, by_keys);
      }
    }
    if (layer.head_norm == HeadNorm::weighted) {
      rows.query_norm.weight = norm_weight(names_.query_norm, size);
      if (layer.keys_of < 0) rows.key_norm.weight = norm_weight(names_.key_norm, size);
    } else if (layer.head_norm == HeadNorm::together) {
      rows.query_norm.weight = norm_of_all(names_.query_norm, q);
      rows.key_norm.weight = norm_of_all(names_.key_norm, kv);
    }
    if (a_.has_sinks)
      rows.sinks =
          vector(names_.sinks, a_.num_heads, Init::normal, TensorSplit{0, {heads_of(queries)}});
    rows.attention_out = matrix(names_.attention_out, a_.d_model, q, TensorSplit{1, {queries}});
    if (a_.attention_out_bias)
      rows.attention_out_bias = bias(names_.attention_out, a_.d_model, std::nullopt);
  }

  void add_delta_rule(BlockRows& rows) {
    const int first = add_all(delta_rule_rows(a_.delta, a_.d_model, names_.delta));
    const int num = a_.delta.is_by_key_head ? 2 : 4, next = first + num;
    rows.delta = {{first, num}, next, next + 1, next + 2, next + 3};
    rows.attention_out = next + 4;
  }

  void add_state_space(BlockRows& rows) {
    const int first = add_all(state_space_rows(a_.states, a_.d_model, names_.state));
    rows.state = {{first, 1}, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6};
    rows.attention_out = first + 7;
  }

  void add_latent_attention(BlockRows& rows) {
    place_latents(a_, add_all(latent_rows(a_, names_)), rows);
  }

  /// One number for each head of pieces of their channels.
  static Pieces heads_of(const Pieces& queries) {
    return {queries.num, queries.parts, queries.parts};
  }

  /// Numbers of an activation function.
  int add_numbers(std::initializer_list<Parameter> numbers) {
    for (Parameter number : numbers) {
      number.name = names_.activation + number.name;
      number.decayed = false;
      number.init = Init::zeros;
      add(std::move(number));
    }
    return static_cast<int>(table_.rows.size() - numbers.size());
  }

  int norm_of_all(const std::string& name, std::int64_t size) {
    const int row = norm_weight(name, size);
    table_.rows.back().reads_all_heads = true;
    return row;
  }

  FeedForwardRows dense_feed_forward(std::int64_t width) {
    if (!names_.gate_up.empty()) return joined_feed_forward(names_.gate_up, names_.down, width);
    const bool is_gated = a_.activation.is_gated;
    FeedForwardRows rows =
        feed_forward(is_gated ? &names_.gate : nullptr, names_.up, names_.down, width);
    if (a_.activation.function == Activation::Function::xielu)
      rows.activation = {add_numbers({{.name = "alpha_p", .shape = {1}},
                                      {.name = "alpha_n", .shape = {1}},
                                      {.name = "beta", .shape = {}},
                                      {.name = "eps", .shape = {}}}),
                         4};
    if (!a_.feed_forward_bias) return rows;
    const TensorSplit by_outputs{0, {channels(width)}};
    if (is_gated) bias(names_.gate, width, by_outputs);
    const int of_up = bias(names_.up, width, by_outputs);
    rows.gate_up_bias = is_gated ? RowRange{of_up - 1, 2} : RowRange{of_up, 1};
    rows.down_bias = bias(names_.down, a_.d_model, std::nullopt);
    return rows;
  }

  /// Gate and up in one tensor.
  FeedForwardRows joined_feed_forward(const std::string& gate_up, const std::string& down,
                                      std::int64_t width) {
    const TensorSplit by_outputs{0, {channels(width), channels(width)}};
    const RowRange of_both{matrix(gate_up, 2 * width, a_.d_model, by_outputs), 1};
    return {.gate_up = of_both,
            .down = matrix(down, a_.d_model, width, TensorSplit{1, {channels(width)}})};
  }

  /// `gate` null: there is none.
  FeedForwardRows feed_forward(const std::string* gate, const std::string& up,
                               const std::string& down, std::int64_t width,
                               Role role = Role::linear) {
    const TensorSplit by_outputs{0, {channels(width)}}, by_inputs{1, {channels(width)}};
    FeedForwardRows rows;
    if (gate != nullptr) matrix(*gate, width, a_.d_model, by_outputs, role);
    const int of_up = matrix(up, width, a_.d_model, by_outputs, role);
    rows.gate_up = gate != nullptr ? RowRange{of_up - 1, 2} : RowRange{of_up, 1};
    rows.down = matrix(down, a_.d_model, width, by_inputs, role);
    return rows;
  }

  ExpertRows experts() {
    const Experts& e = a_.experts;
    ExpertRows rows;
    rows.router = matrix(names_.router, e.num, a_.d_model, std::nullopt, Role::router);
    if (e.has_biases) rows.router_bias = bias(names_.router, e.num, std::nullopt);
    if (e.corrects_choice)
      rows.correction = names_.correction_is_matrix
                            ? constant(names_.correction, {1, e.num}, Init::zeros)
                            : constant(names_.correction, {e.num}, Init::zeros);
    if (!names_.fused_gate_up.empty()) {
      rows.are_by_outputs = names_.fused_are_by_outputs;
      const auto shape = [&](std::int64_t inputs, std::int64_t outputs) {
        if (rows.are_by_outputs) std::swap(inputs, outputs);
        return std::vector<std::int64_t>{e.num, inputs, outputs};
      };
      rows.gate_up = {add({.name = names_.fused_gate_up,
                           .shape = shape(a_.d_model, 2 * e.d_ff),
                           .role = Role::expert,
                           .of_experts = OfExperts{0, e.num, e.num}}),
                      1};
      rows.down = add({.name = names_.fused_down,
                       .shape = shape(e.d_ff, a_.d_model),
                       .role = Role::expert,
                       .of_experts = OfExperts{0, e.num, e.num}});
      if (e.has_biases) {
        rows.gate_up_bias = biases_of_experts(names_.fused_gate_up, 2 * e.d_ff);
        rows.down_bias = biases_of_experts(names_.fused_down, a_.d_model);
      }
      return rows;
    }
    for (std::int64_t i = 0; i < e.num; ++i) {
      const std::string expert = names_.expert + std::to_string(i);
      const std::string gate = expert + names_.expert_gate;
      const FeedForwardRows one =
          feed_forward(e.activation.is_gated ? &gate : nullptr, expert + names_.expert_up,
                       expert + names_.expert_down, e.d_ff, Role::expert);
      for (int row = one.gate_up.first; row <= one.down; ++row)
        table_.rows[static_cast<std::size_t>(row)].of_experts = OfExperts{i, 1, e.num};
      if (i > 0) continue;
      rows.gate_up = one.gate_up;
      rows.down = one.down;
      rows.stride = one.down + 1 - one.gate_up.first;
    }
    return rows;
  }

  int constant(const std::string& name, std::vector<std::int64_t> shape, Init init) {
    return add({.name = name,
                .shape = std::move(shape),
                .trainable = false,
                .is_constant = true,
                .decayed = false,
                .init = init});
  }

  int biases_of_experts(const std::string& name, std::int64_t size) {
    const std::int64_t num = a_.experts.num;
    const int row = add({.name = name + "_bias", .shape = {num, size}, .init = Init::zeros});
    table_.rows.back().decayed = false;
    table_.rows.back().of_experts = OfExperts{0, num, num};
    return row;
  }

  TensorSplit vocabulary() const { return {0, {{a_.vocab_size}}}; }

  const Architecture& a_;
  const TensorNames& names_;
  ParameterTable table_;
  int unit_ = 0;
  int stage_ = 0;
  int next_stage_ = 0;
  int part_ = 0;
  std::string prefix_;
};

}  // namespace

ParameterTable lay_out(const Architecture& architecture, const TensorNames& names) {
  require_computed(architecture);
  ParameterTable table = Builder(architecture, names).build();
  table.foreign = names.foreign;
  return table;
}

}  // namespace finetune::model
