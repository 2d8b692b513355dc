// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/expert_matrices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "model/adapter_targets.hpp"
#include "model/names.hpp"

namespace finetune::adapters::lora {
namespace {

using model::Parameter;
using model::ParameterTable;

constexpr std::string_view end_of_experts = ".experts";
constexpr const char* down = "down_proj";

/// The module that has the experts and its parameter, as transformers calls them: a tensor of all
/// experts, or of one, whose matrices transformers puts together.
std::pair<std::string, std::string> names_of(const Parameter& first, bool are_in_one, bool are_down,
                                             bool are_gated) {
  const std::string tensor = model::module_of(model::name_in_transformers(first.name));
  if (are_in_one) return {tensor.substr(0, tensor.rfind('.')), model::last_part(tensor)};
  return {tensor.substr(0, tensor.rfind(end_of_experts) + end_of_experts.size()),
          are_down    ? down
          : are_gated ? "gate_up_proj"
                      : "up_proj"};
}

/// What ends of names mean the parameter in all layers: its name behind the layer's number.
std::string without_layer(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t at = name.size();
  while (at > 0 && !is_digit(name[at - 1]))
    --at;
  return name.substr(std::min(at + 1, name.size()));
}

ExpertMatrices matrices_of(const ParameterTable& table, const model::ExpertRows& rows,
                           bool are_down) {
  const model::RowRange range = are_down ? model::RowRange{rows.down, 1} : rows.gate_up;
  const Parameter& first = table.row(range.first);
  const auto [module, parameter] = names_of(first, rows.stride == 0, are_down, range.num == 2);
  ExpertMatrices all{.module = module,
                     .parameter = parameter,
                     .first = range.first,
                     .rows_of_one = range.num,
                     .stride = rows.stride};
  if (rows.stride > 0) {
    all.num = first.of_experts->total;
    all.num_inputs = first.shape[1];
    for (int i = 0; i < range.num; ++i)
      all.num_outputs += table.row(range.first + i).shape[0];
    return all;
  }
  // PEFT takes [E, out, in] for granted, but for gpt-oss, whose module says that it is not.
  all.num = first.shape[0];
  all.num_outputs = first.shape[1];
  all.num_inputs = first.shape[2];
  const bool is_llama4 = all.module.ends_with(".feed_forward.experts");
  all.is_by_inputs = !rows.are_by_outputs;
  all.of_transpose = !rows.are_by_outputs && is_llama4;
  if (!rows.are_by_outputs && !is_llama4) std::swap(all.num_outputs, all.num_inputs);
  return all;
}

/// As PEFT names the parts: a module whose other parameter has parts as well lies within them.
std::string name_of_part(const ExpertMatrices& of, bool has_others, const char* ending) {
  const bool is_within = has_others && of.parameter != down;
  return model::peft_prefix + of.module + (is_within ? ".base_layer" : "") + ending;
}

int add_row(const ExpertMatrices& of, std::string name, std::vector<std::int64_t> shape,
            model::Init init, ParameterTable& table) {
  const Parameter& base = table.row(of.first);
  Parameter added{.name = std::move(name),
                  .shape = std::move(shape),
                  .unit = static_cast<int>(table.units.size()) - 1,
                  .init = init,
                  .stage = base.stage};
  added.adapts = of.first;
  table.rows.push_back(std::move(added));
  return static_cast<int>(table.rows.size()) - 1;
}

void refuse_trained(const std::string& where, const Parameter& row) {
  if (!row.trainable) return;
  core::fail(core::ErrorKind::deck,
             {where, fmt::format("{} is adapted and trained in full", row.name),
              "adapter.target_parameters and adapter.modules_to_save both name it",
              "Name it in one of them."});
}

}  // namespace

std::vector<ExpertMatrices> named_experts(const std::vector<std::string>& target_parameters,
                                          const std::string& where, const ParameterTable& table) {
  std::vector<ExpertMatrices> all, named;
  if (target_parameters.empty()) return named;
  for (const model::BlockRows& block : table.decoder.blocks) {
    const bool has_experts = block.experts.gate_up.first > 0 && block.experts.down > 0;
    if (!has_experts) continue;
    all.push_back(matrices_of(table, block.experts, false));
    all.push_back(matrices_of(table, block.experts, true));
  }
  const auto means = [](const ExpertMatrices& matrices, const std::string& target) {
    return matrices.name() == target || matrices.name().ends_with("." + target);
  };
  std::set<std::string> known;
  for (const ExpertMatrices& matrices : all)
    known.insert(without_layer(matrices.name()));
  for (const std::string& target : target_parameters) {
    const bool is_found = std::ranges::any_of(
        all, [&](const ExpertMatrices& matrices) { return means(matrices, target); });
    if (is_found || where.empty()) continue;
    if (all.empty())
      core::fail(core::ErrorKind::deck,
                 {where, fmt::format("adapter.target_parameters names \"{}\"", target),
                  "the model has no experts", "Name matrices in adapter.target_modules."});
    model::fail_unknown_module(where, "target_parameters", target,
                               "no parameter of experts has this name",
                               {known.begin(), known.end()});
  }
  for (const ExpertMatrices& matrices : all)
    if (std::ranges::any_of(target_parameters,
                            [&](const std::string& target) { return means(matrices, target); }))
      named.push_back(matrices);
  for (const ExpertMatrices& matrices : named)
    refuse_trained(where, table.row(matrices.first));
  return named;
}

void add_to_experts(const std::vector<ExpertMatrices>& all, const LowRankSizes& sizes,
                    ParameterTable& table) {
  for (const ExpertMatrices& of : all) {
    const bool has_others = std::ranges::count(all, of.module, &ExpertMatrices::module) > 1;
    const std::int64_t rank = of.num * sizes.rank(of.name());
    const int a = add_row(of, name_of_part(of, has_others, ".lora_A.weight"), {rank, of.num_inputs},
                          model::Init::fan_in, table);
    const int b = add_row(of, name_of_part(of, has_others, ".lora_B.weight"),
                          {of.num_outputs, rank}, model::Init::zeros, table);
    const std::int64_t num_rows = of.stride > 0 ? of.num : 1;
    for (std::int64_t i = 0; i < num_rows; ++i) {
      std::int64_t first_output = 0;
      for (int k = 0; k < of.rows_of_one; ++k) {
        Parameter& row =
            table.rows[static_cast<std::size_t>(of.first + static_cast<int>(i) * of.stride + k)];
        row.adapted.parts = {a, b};
        row.adapted.scale = sizes.scale(of.name());
        row.adapted.of_transpose = of.of_transpose;
        row.adapted.together = {
            .num = of.num, .i = i, .first_output = first_output, .is_by_inputs = of.is_by_inputs};
        first_output += row.shape.front();
      }
    }
  }
}

}  // namespace finetune::adapters::lora
