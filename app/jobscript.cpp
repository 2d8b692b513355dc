// SPDX-License-Identifier: Apache-2.0
#include "jobscript.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/error.hpp"
#include "core/installation.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

std::int64_t mebibytes(std::int64_t bytes) {
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  return (bytes + mebibyte - 1) / mebibyte;
}

/// HH:MM:SS, which all three read, of any number of hours.
std::string walltime(std::int64_t seconds) {
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

/// A word of a directive: what goes beyond its line would be a command, or nothing.
std::string checked(const std::string& option, const std::string& value) {
  const bool is_line =
      std::ranges::none_of(value, [](unsigned char letter) { return std::iscntrl(letter) != 0; });
  if (!value.empty() && is_line) return value;
  core::fail(core::ErrorKind::command_line,
             {option, value.empty() ? "it is empty" : "it is more than one line",
              "it becomes one line of a jobscript", "Give its value on one line."});
}

/// `mark` begins a directive, `account` and `queue` the options of that name.
std::string site_directives(const Job& job, const std::string& mark, const std::string& account,
                            const std::string& queue) {
  std::string text;
  if (!job.account.empty())
    text += fmt::format("{} {}{}\n", mark, account, checked("--account", job.account));
  if (!job.queue.empty())
    text += fmt::format("{} {}{}\n", mark, queue, checked("--queue", job.queue));
  // Last, so that they count where they say something else than what was planned.
  for (const std::string& option : job.options)
    text += fmt::format("{} {}\n", mark, checked("--job-option", option));
  return text;
}

std::string slurm_directives(const Job& job) {
  std::string text = fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n",
                                 job.num_nodes, job.ranks_per_node);
  if (job.cores_per_rank > 0)
    text += fmt::format("#SBATCH --cpus-per-task={}\n", job.cores_per_rank);
  if (job.walltime_s > 0) text += fmt::format("#SBATCH --time={}\n", walltime(job.walltime_s));
  // The two minutes of the script would be the most of a short job.
  if (job.walltime_s > 0 && job.walltime_s < 600)
    text +=
        fmt::format("#SBATCH --signal=B:USR1@{}\n", std::max<std::int64_t>(1, job.walltime_s / 5));
  if (job.gpus_per_node > 0) text += fmt::format("#SBATCH --gpus-per-node={}\n", job.gpus_per_node);
  if (job.node_memory_bytes > 0)
    text += fmt::format("#SBATCH --mem={}M\n", mebibytes(job.node_memory_bytes));
  return text + site_directives(job, "#SBATCH", "--account=", "--partition=");
}

/// PBS and TORQUE give the cores that are asked for, so somebody has to say them.
std::int64_t cores_to_ask(const Job& job) {
  return std::max<std::int64_t>(1, job.cores_per_rank);
}

std::string pbs_walltime(const Job& job) {
  return job.walltime_s > 0 ? fmt::format("#PBS -l walltime={}\n", walltime(job.walltime_s)) : "";
}

std::string pbs_directives(const Job& job) {
  std::string chunk =
      fmt::format("{}:ncpus={}:mpiprocs={}:ompthreads={}", job.num_nodes,
                  job.ranks_per_node * cores_to_ask(job), job.ranks_per_node, cores_to_ask(job));
  if (job.gpus_per_node > 0) chunk += fmt::format(":ngpus={}", job.gpus_per_node);
  if (job.node_memory_bytes > 0)
    chunk += fmt::format(":mem={}mb", mebibytes(job.node_memory_bytes));
  return fmt::format("#PBS -l select={}\n#PBS -l place=scatter\n{}", chunk, pbs_walltime(job)) +
         site_directives(job, "#PBS", "-A ", "-q ");
}

std::string torque_directives(const Job& job) {
  std::string nodes =
      fmt::format("{}:ppn={}", job.num_nodes, job.ranks_per_node * cores_to_ask(job));
  if (job.gpus_per_node > 0) nodes += fmt::format(":gpus={}", job.gpus_per_node);
  std::string text = fmt::format("#PBS -l nodes={}\n{}", nodes, pbs_walltime(job));
  // That of all nodes together.
  if (job.node_memory_bytes > 0)
    text += fmt::format("#PBS -l mem={}mb\n", job.num_nodes * mebibytes(job.node_memory_bytes));
  return text + site_directives(job, "#PBS", "-A ", "-q ");
}

std::string directives(const std::string& scheduler, const Job& job) {
  if (scheduler == "slurm") return slurm_directives(job);
  if (scheduler == "pbs") return pbs_directives(job);
  if (scheduler == "torque") return torque_directives(job);
  core::fail(core::ErrorKind::command_line,
             {fmt::format("--jobscript {}", scheduler), "there is no script for this scheduler",
              "the program comes with slurm, pbs (OpenPBS, PBS Professional) and torque",
              "Use one of slurm, pbs and torque."});
}

/// A word that the shell takes as it is.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word)
    text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

/// Those of `options` that a job does not hand on by itself.
std::string next_options(const Job& job) {
  std::string options;
  for (const std::string& option : job.options)
    if (!option.starts_with("-l")) options += (options.empty() ? "" : " ") + option;
  if (options.empty()) return "";
  return fmt::format("export FINETUNE_QSUB_OPTIONS={}\n", quoted(std::as_const(options)));
}

std::string assignments(const std::string& scheduler, const Job& job, const fs::path& root) {
  std::string text = fmt::format("\nFINETUNE_ROOT={}\n", quoted(root.string()));
  // The next job needs it too.
  if (scheduler == "torque")
    text += fmt::format("export FINETUNE_CORES_PER_RANK={}\n", cores_to_ask(job));
  // The next job has this one's resources, account and queue by itself.
  if (scheduler != "slurm") text += next_options(job);
  text += fmt::format("[ $# -gt 0 ] || set -- {}", quoted(job.deck));
  for (const std::string& setting : job.settings)
    text += ' ' + quoted(setting);
  return text + '\n';
}

std::string read(const fs::path& script) {
  std::ifstream file(script);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    core::fail(core::ErrorKind::environment,
               {script.string(), "it cannot be read", "it comes with the program",
                "Install the program again with cmake --install."});
  }
  return text.str();
}

}  // namespace

std::string jobscript(const std::string& scheduler, const Job& job) {
  return jobscript(scheduler, job, core::shipped("jobscripts"));
}

std::string jobscript(const std::string& scheduler, const Job& job, const fs::path& jobscripts) {
  const std::string asked = (job.note.empty() ? "" : "# " + checked("sinfo", job.note) + "\n") +
                            directives(scheduler, job);
  const fs::path script = jobscripts / scheduler / "train.sh";
  std::string text = read(script);
  // Schedulers read directives up to the first command, which is this one in every script.
  const std::string first = "\nset -euo pipefail\n";
  const std::size_t place = text.find(first);
  if (place == std::string::npos) {
    core::fail(
        core::ErrorKind::environment,
        {script.string(), "it has no line \"set -euo pipefail\"",
         "the directives of the job go before it", "Restore the line as the first command."});
  }
  const fs::path root = fs::absolute(jobscripts).lexically_normal().parent_path();
  text.insert(place + first.size(), assignments(scheduler, job, root));
  return text.insert(place + 1, asked);
}

}  // namespace finetune::app
