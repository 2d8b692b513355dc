// SPDX-License-Identifier: Apache-2.0
// finetune plan MODEL --texts: what ranks need that write texts with a model.
#include <fmt/format.h>

#include <numeric>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "generate.hpp"
#include "kernels/gpu_kernels.hpp"
#include "model/part.hpp"
#include "plan/memory/generation.hpp"
#include "train/input/described_model.hpp"

namespace finetune::app {
namespace {

void require_ranks(const Arguments& arguments, std::int64_t ranks,
                   const model::ParameterTable& table) {
  const std::int64_t node = arguments.ranks_per_node.value_or(ranks);
  if (ranks % node != 0 || node % arguments.tp != 0)
    core::fail(
        core::ErrorKind::command_line,
        {"--tp",
         fmt::format("a node has {} of {} ranks, no multiple of {}", node, ranks, arguments.tp),
         "that many ranks of a node share every matrix", "Choose a number that divides it."});
  const std::string why = model::why_not(table, arguments.tp);
  if (!why.empty())
    core::fail(
        core::ErrorKind::command_line,
        {"--tp", fmt::format("{} ranks cannot share the matrices of this model", arguments.tp), why,
         "Choose a smaller number."});
  if (arguments.on_gpu && ranks > 1)
    core::fail(core::ErrorKind::command_line,
               {"--gpu", "ranks that share a model compute on their processors",
                "a process alone takes a GPU", "Leave out --gpu, or --ranks."});
}

std::string texts_of(const plan::GenerationInput& input) {
  const std::int64_t writers = input.world_size / input.tp;
  std::string text =
      fmt::format("{} texts of up to {} + {} tokens at once", input.batch,
                  core::with_commas(input.prompt_tokens), core::with_commas(input.new_tokens));
  if (input.world_size > 1)
    text +=
        writers == 1 ? fmt::format(", on {} ranks that share every matrix", input.tp)
        : input.tp == 1
            ? fmt::format(" on each of {} ranks, which gather the weights in every pass", writers)
            : fmt::format(
                  " on each of {} groups of {} ranks, which gather the weights in every pass",
                  writers, input.tp);
  return text;
}

}  // namespace

int run_texts_plan(const Arguments& arguments, const train::Registry& registry) {
  if (arguments.jobscript || arguments.machine || !arguments.overrides.empty())
    core::fail(core::ErrorKind::command_line,
               {"finetune plan", "--texts plans memory alone",
                "a folder of a model has no deck, and nothing is timed",
                "Leave out --machine, --jobscript and key=value."});
  const auto described = train::describe_model({}, arguments.path, registry);
  plan::GenerationInput input{
      .architecture = described.architecture,
      .compute = dtype_of_products(arguments, described.architecture.file_dtype),
      .world_size = arguments.ranks.value_or(1),
      .tp = arguments.tp,
      .on_gpu = arguments.on_gpu,
      .has_gpu_kernels = kernels::has_kernels_for_gpus(),
      .batch = arguments.batch,
      .prompt_tokens = arguments.prompt_tokens,
      .new_tokens = arguments.max_tokens,
      .tokens_together = train::GenerateOptions().prompt_tokens};
  require_ranks(arguments, input.world_size, described.parameters);
  const auto items = plan::plan_generation(input, described.parameters);
  const std::int64_t bytes = std::accumulate(
      items.begin(), items.end(), std::int64_t{0},
      [](std::int64_t sum, const plan::MemoryItem& item) { return sum + item.bytes; });
  log::info(fmt::format("texts of {} ({}), computed in {}", arguments.path, described.family->name,
                        core::name(input.compute)));
  log::info(fmt::format("  {:<24} {}", "parameters",
                        core::with_commas(described.parameters.num_parameters())));
  log::info(fmt::format("  {:<24} {}", "texts", texts_of(input)));
  log::info(fmt::format("  {:<24} {} at the peak", "memory per rank", core::human_bytes(bytes)));
  log::info(plan::to_string(items));
  if (!arguments.memory) return core::exit_done;
  const std::int64_t available = parse_bytes(*arguments.memory);
  if (bytes > available)
    core::fail(
        core::ErrorKind::environment,
        {arguments.path, fmt::format("needs {} of memory per rank", core::human_bytes(bytes)),
         fmt::format("{} are there", core::human_bytes(available)),
         "Use more ranks and --tp, a smaller --batch, or a model in 4 bits."});
  log::info(fmt::format("fits: {} of {}", core::human_bytes(bytes), core::human_bytes(available)));
  return core::exit_done;
}

}  // namespace finetune::app
