// SPDX-License-Identifier: Apache-2.0
#include "model/detail/latent_layout.hpp"

#include <string>
#include <utility>

namespace finetune::model {

std::vector<Parameter> latent_rows(const Architecture& a, const TensorNames& names) {
  const Latents& of = a.latents;
  std::vector<Parameter> rows;
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in,
                          std::optional<TensorSplit> split) {
    rows.push_back({.name = name + ".weight",
                    .shape = {out, in},
                    .role = Role::linear,
                    .split = std::move(split)});
  };
  const auto norm = [&](const std::string& name, std::int64_t size) {
    rows.push_back({.name = name + ".weight",
                    .shape = {size},
                    .decayed = false,
                    .init = a.norm_kind.weight_offset == 0 ? Init::ones : Init::zeros});
  };
  const auto heads = [&](std::size_t dim, std::int64_t size) {
    return TensorSplit{dim, {{a.num_heads, size}}};
  };
  const std::int64_t queries = a.num_heads * a.query_size();
  if (of.d_query > 0)
    matrix(names.query_latent, of.d_query, a.d_model, {});
  else
    matrix(names.query, queries, a.d_model, {});
  matrix(names.latent, of.d_key_value + a.rotary_size, a.d_model, {});
  if (of.d_query > 0) {
    norm(names.query_latent_norm, of.d_query);
    matrix(names.query_up, queries, of.d_query, heads(0, a.query_size()));
  }
  norm(names.latent_norm, of.d_key_value);
  const std::int64_t a_head = of.unturned + of.value_size;
  matrix(names.key_value_up, a.num_heads * a_head, of.d_key_value, heads(0, a_head));
  matrix(names.attention_out, a.d_model, a.num_heads * of.value_size, heads(1, of.value_size));
  return rows;
}

void place_latents(const Architecture& a, int first, BlockRows& rows) {
  rows.qkv = {first, 2};
  int next = first + 2;
  if (a.latents.d_query > 0) {
    rows.query_norm.weight = next++;
    rows.query_up = next++;
  }
  rows.key_norm.weight = next;
  rows.key_value_up = next + 1;
  rows.attention_out = next + 2;
}

}  // namespace finetune::model
