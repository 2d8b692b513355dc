// SPDX-License-Identifier: Apache-2.0
// Of config.json: experts, as DeepSeek 2 and those after it say it.

#include "model/config_json.hpp"

namespace finetune::model {
namespace {

void require_groups(const ConfigReader& config, const Experts& experts) {
  if (experts.num % experts.num_groups != 0)
    config.fail("n_group", "does not divide n_routed_experts", "groups have as many experts each");
  if (experts.top_k_groups > experts.num_groups)
    config.fail("topk_group", "exceeds n_group", "a token takes experts of a group once");
  if (experts.top_k > experts.top_k_groups * (experts.num / experts.num_groups))
    config.fail("num_experts_per_tok", "exceeds the experts of topk_group groups",
                "a token takes each once");
}

/// Of experts, but of their groups.
void read_sizes(const ConfigReader& config, const Experts& unsaid, std::int64_t first_with_experts,
                Architecture& a) {
  Experts& experts = a.experts;
  experts.num = config.size("n_routed_experts", unsaid.num);
  experts.top_k = config.size("num_experts_per_tok", unsaid.top_k);
  experts.d_ff = config.size("moe_intermediate_size", unsaid.d_ff);
  experts.d_shared = experts.d_ff * config.size("n_shared_experts", 1);
  experts.weight_scale = read_factor(config, "routed_scaling_factor", unsaid.weight_scale);
  const double first =
      config.real("first_k_dense_replace", static_cast<double>(first_with_experts));
  for (std::size_t i = 0; i < a.layers.size(); ++i)
    a.layers[i].has_experts = static_cast<double>(i) >= first;
}

void read_groups(const ConfigReader& config, const Experts& unsaid, Architecture& a) {
  a.experts.num_groups = config.size("n_group", unsaid.num_groups);
  a.experts.top_k_groups = config.size("topk_group", unsaid.top_k_groups);
  require_groups(config, a.experts);
}

}  // namespace

void read_apart_scores(const ConfigReader& config, Architecture& a) {
  config.require_text("scoring_func", "sigmoid", {"sigmoid"});
  a.experts.scores_apart = a.experts.corrects_choice = true;
}

void read_grouped_experts(const ConfigReader& config, const Experts& unsaid, Architecture& a,
                          std::int64_t first_with_experts) {
  config.require_text("topk_method", "noaux_tc", {"noaux_tc"});
  read_apart_scores(config, a);
  read_sizes(config, unsaid, first_with_experts, a);
  a.experts.normalizes = config.boolean("norm_topk_prob", true);
  read_groups(config, unsaid, a);
}

void read_softmax_experts(const ConfigReader& config, const Experts& unsaid, Architecture& a,
                          std::int64_t first_with_experts) {
  const char* key = "topk_method";
  config.require_text("scoring_func", "softmax", {"softmax"});
  config.require_text(key, "greedy", {"greedy", "group_limited_greedy"});
  // What weights that sum to 1 are multiplied by, programs do not agree on.
  config.require_false("norm_topk_prob");
  read_sizes(config, unsaid, first_with_experts, a);
  a.experts.normalizes = false;
  a.experts.summed_of_group = 1;
  if (config.text(key, "greedy") != "greedy") read_groups(config, unsaid, a);
  if (a.experts.top_k > a.experts.num)
    config.fail("num_experts_per_tok", "exceeds n_routed_experts", "a token takes each once");
}

}  // namespace finetune::model
