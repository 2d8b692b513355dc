// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdint>

#include "options.hpp"

namespace finetune::app {
namespace {

void add_plan_jobscript(CLI::App& plan, Arguments& arguments) {
  CLI::Option* script =
      plan.add_option("--jobscript", arguments.jobscript,
                      "Print a job for slurm, pbs or torque instead: with --machine also the time "
                      "that it needs; without it Slurm is asked what its nodes have")
          ->check(CLI::IsMember({"slurm", "pbs", "torque"}));
  plan.add_option("--account", arguments.account, "Of the job: the project that it is for")
      ->needs(script);
  plan.add_option("--partition,--queue", arguments.queue, "Of the job: where it waits")
      ->needs(script);
  plan.add_option("--job-option", arguments.job_options,
                  "One more option of sbatch or qsub, such as --job-option=--qos=long; may be "
                  "given several times")
      ->allow_extra_args(false)
      ->needs(script);
  plan.add_option("--cores-per-rank", arguments.cores_per_rank,
                  "Of the job, where neither --machine nor Slurm says it")
      ->check(CLI::Range(1, 1 << 16))
      ->needs(script);
}

/// Of a model that writes texts.
void add_plan_texts(CLI::App& plan, CLI::Option& data, Arguments& arguments) {
  CLI::Option* texts = plan.add_flag("--texts", arguments.is_about_texts,
                                     "Of a model folder instead of a deck: memory per rank of "
                                     "finetune generate");
  texts->excludes(&data);
  plan.add_option("--tp", arguments.tp, "With --texts: ranks of a node that share every matrix")
      ->check(CLI::Range(1, 1024))
      ->needs(texts);
  plan.add_option("--batch", arguments.batch, "With --texts: texts that a rank writes at once")
      ->check(CLI::Range(1, 1 << 16))
      ->needs(texts);
  plan.add_option("--prompt-tokens", arguments.prompt_tokens, "With --texts: of each prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->needs(texts);
  plan.add_option("--max-tokens", arguments.max_tokens, "With --texts: new ones of each text")
      ->check(CLI::Range(1, 1 << 24))
      ->needs(texts);
  plan.add_option("--dtype", arguments.dtype_of_products, "With --texts: as of generate")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}))
      ->needs(texts);
}

}  // namespace

void add_plan(CLI::App& app, Arguments& arguments) {
  CLI::App* plan = app.add_subcommand("plan",
                                      "Does it fit, how long does it take: memory per rank, time "
                                      "per step, scaling. Needs no MPI job.");
  plan->add_option("deck", arguments.path, "The deck; with --texts a model folder")->required();
  plan->add_option("overrides", arguments.overrides, "table.key=value");
  plan->add_option("--ranks", arguments.ranks, "Ranks of the job")->check(CLI::Range(1, 1 << 24));
  plan->add_option("--ranks-per-node", arguments.ranks_per_node, "Ranks of one node")
      ->check(CLI::Range(1, 1 << 16));
  plan->add_flag("--gpu", arguments.on_gpu, "One GPU per rank");
  plan->add_flag("--gpu-kernels", arguments.has_gpu_kernels,
                 "Of a build whose Kokkos has CUDA: kernels compute on GPUs what takes libtorch "
                 "several operations");
  plan->add_option("--memory", arguments.memory,
                   "Memory per rank, for example 80GiB: exit code 69 if it does not fit");
  CLI::Option* machine = plan->add_option(
      "--machine", arguments.machine,
      "Machine to time it on: h100-8, a100-80-8, ... of inputs/machines, or a file");
  plan->add_option("--nodes", arguments.nodes, "Nodes of the job")->check(CLI::Range(1, 1 << 24));
  plan->add_option("--samples", arguments.samples,
                   "Samples to train on (with packing: sequences); together with train.epochs they "
                   "give the number of steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}))
      ->needs(machine);
  plan->add_option("--sample-tokens", arguments.sample_tokens,
                   "With packing: the length of the sample that a token is in, on average, as "
                   "--data prints it; without it attention is timed as of whole sequences")
      ->check(CLI::Range(1, 1 << 30))
      ->needs(machine);
  plan->add_flag("--meshes", arguments.compares_meshes,
                 "Compare meshes of tensor, context and expert parallelism, too")
      ->needs(machine);
  plan->add_option("--plot", arguments.plot, "Draw the scaling over nodes into an SVG file")
      ->needs(machine);
  add_plan_jobscript(*plan, arguments);
  CLI::Option* data =
      plan->add_flag("--data", arguments.is_about_data,
                     "Print the data report instead: lengths, trained part, oddities");
  add_plan_texts(*plan, *data, arguments);
}

}  // namespace finetune::app
