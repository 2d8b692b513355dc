#pragma once
// SPDX-License-Identifier: Apache-2.0
// The command line.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/device.hpp"
#include "train/infer/generation_config.hpp"
#include "train/run/lr_range_settings.hpp"

namespace finetune::app {

/// finetune evaluate.
struct EvaluateArguments {
  std::vector<std::string> models;    ///< folders; the others are compared with the first
  std::vector<std::string> adapters;  ///< folders of adapters for the first
  std::vector<std::string> tasks;     ///< files
  std::string data;                   ///< folder of the tasks' data; empty: beside their files
  std::string output;                 ///< folder
  std::string dtype = "auto";
  bool is_ema = false;     ///< of runs, the mean of their weights
  std::int64_t limit = 0;  ///< questions a task; 0: all
  std::int64_t batch_tokens = 2048;
  std::int64_t batch = 16;
  std::int64_t seed = 0;
};

enum class Command {
  train,
  lr_range,
  plan,
  check,
  import_configuration,
  tokenize,
  generate,
  evaluate,
  export_weights,
  quantize,
  verify,
  report,
  watch,
  trace,
  reference,
  version
};

struct Arguments {
  Command command = Command::train;
  std::string path;                    ///< deck, model folder or checkpoint
  std::string second;                  ///< prompt or output folder
  std::vector<std::string> overrides;  ///< key=value

  std::optional<std::int64_t> ranks;           ///< plan, import
  std::optional<std::int64_t> ranks_per_node;  ///< plan
  std::optional<std::string> memory;           ///< plan: "80GiB"
  bool has_gpu_kernels = false;                ///< plan: of a build with kernels for GPUs
  bool on_gpu = false;                         ///< plan: each rank has one
  std::optional<std::int64_t> nodes;           ///< plan
  std::optional<std::string> machine;          ///< plan: a name, or a file
  bool compares_meshes = false;                ///< plan: of tp, cp and ep
  std::optional<std::string> plot;             ///< plan: the file to draw scaling in
  std::optional<std::string> jobscript;        ///< plan: "slurm", "pbs", "torque"
  std::string account;                         ///< plan --jobscript: who pays
  std::string queue;                           ///< plan --jobscript: or partition
  std::vector<std::string> job_options;        ///< plan --jobscript: more directives
  std::optional<std::int64_t> cores_per_rank;  ///< plan --jobscript, where no machine says it
  std::int64_t sample_tokens = 0;              ///< plan: of packed samples; 0: of whole sequences
  std::optional<std::int64_t> samples;         ///< plan: to train on; of packed data sequences
  bool is_about_data = false;                  ///< plan: the data report alone
  bool is_about_texts = false;                 ///< plan: of generating with a model folder
  std::int64_t prompt_tokens = 1024;           ///< plan --texts: of each prompt

  std::string from;  ///< import: whose configuration it is

  train::LrRange lr_range;  ///< lr-range

  bool is_quick = false;  ///< check: nothing that is measured
  std::string save;       ///< check: the file of the table [machine]

  train::SamplingValues sampling;                       ///< generate
  std::int64_t max_tokens = 128;                        ///< generate
  std::int64_t seed = 0;                                ///< generate
  comm::UseOfGpus device = comm::UseOfGpus::automatic;  ///< generate
  bool is_instruction = false;          ///< generate: wrap the prompt as Alpaca data do
  bool is_chat = false;                 ///< generate: wrap the prompt as the chat template does
  std::string chat_template = "model";  ///< generate: the template's name
  std::string template_kwargs;          ///< generate: names for the template, as JSON
  std::string system;                   ///< generate: the system message, if there is one

  std::vector<std::string> adapters;       ///< generate: PEFT folders
  std::vector<std::string> stops;          ///< generate: texts that end an answer
  std::int64_t num_answers = 1;            ///< generate: answers of a prompt
  bool shows_log_probs = false;            ///< generate
  std::string file;                        ///< generate: of prompts
  std::string output;                      ///< generate: file of answers
  std::int64_t batch = 16;                 ///< generate: texts that a rank computes at once
  std::int64_t tp = 1;                     ///< generate: ranks that share every matrix
  std::string dtype_of_products = "auto";  ///< generate: or "bf16", "fp32"
  EvaluateArguments evaluate = {};

  std::string model;                   ///< export: model folder, if not the one of the run
  std::string dtype;                   ///< export: of all tensors, if not that of the source
  std::string max_shard_size = "5GB";  ///< export, quantize
  bool writes_sums = true;  ///< export: hashes beside the files; not of what is thrown away
  bool is_ema = false;      ///< export, evaluate: the mean of the weights
  bool merges = false;      ///< export: the adapter into the weights
  std::string merge_into = "trained";                  ///< export: or "original"
  comm::UseOfGpus merges_on = comm::UseOfGpus::never;  ///< export --merge
  bool is_single = false;                              ///< quantize: the maxima of blocks are not
  std::string format = "nf4";                          ///< quantize: or "fp8", "fp8-block"
  bool is_merge = false;                               ///< trace: merge, not hang
  std::vector<std::string> runs;                       ///< report: output folders
  bool is_csv = false;                                 ///< report: numbers instead of a page
  std::string picture;                                 ///< report: one instead of a page
  bool is_logarithmic = false;                         ///< report: losses
  bool is_once = false;                                ///< watch: say how it is, and end
  double interval_s = 2;                               ///< watch: between two looks

  bool is_best = false;  ///< export: the lowest validation loss, not the newest
};

/// Whether MPI is needed: to train with the deck that the command line names, to check the job, for
/// what several ranks were started with and can share, or, if the command line is wrong, to say so
/// once.
bool needs_ranks(int argc, char** argv);

/// Throws: core::Error of kind command_line; its message holds the usage where that helps. Asking
/// for help prints it and exits with 0.
Arguments parse(int argc, char** argv);

}  // namespace finetune::app
