// SPDX-License-Identifier: Apache-2.0
#include "jobscript.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

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

std::string slurm_directives(const Job& job) {
  std::string text = fmt::format(
      "#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n#SBATCH --cpus-per-task={}\n"
      "#SBATCH --time={}\n",
      job.num_nodes, job.ranks_per_node, job.cores_per_rank, walltime(job.walltime_s));
  // The two minutes of the script would be the most of a short job.
  if (job.walltime_s < 600)
    text +=
        fmt::format("#SBATCH --signal=B:USR1@{}\n", std::max<std::int64_t>(1, job.walltime_s / 5));
  if (job.gpus_per_node > 0) text += fmt::format("#SBATCH --gpus-per-node={}\n", job.gpus_per_node);
  if (job.node_memory_bytes > 0)
    text += fmt::format("#SBATCH --mem={}M\n", mebibytes(job.node_memory_bytes));
  return text;
}

std::string pbs_directives(const Job& job) {
  std::string chunk =
      fmt::format("{}:ncpus={}:mpiprocs={}:ompthreads={}", job.num_nodes,
                  job.ranks_per_node * job.cores_per_rank, job.ranks_per_node, job.cores_per_rank);
  if (job.gpus_per_node > 0) chunk += fmt::format(":ngpus={}", job.gpus_per_node);
  if (job.node_memory_bytes > 0)
    chunk += fmt::format(":mem={}mb", mebibytes(job.node_memory_bytes));
  return fmt::format("#PBS -l select={}\n#PBS -l place=scatter\n#PBS -l walltime={}\n", chunk,
                     walltime(job.walltime_s));
}

std::string torque_directives(const Job& job) {
  std::string nodes =
      fmt::format("{}:ppn={}", job.num_nodes, job.ranks_per_node * job.cores_per_rank);
  if (job.gpus_per_node > 0) nodes += fmt::format(":gpus={}", job.gpus_per_node);
  std::string text =
      fmt::format("#PBS -l nodes={}\n#PBS -l walltime={}\n", nodes, walltime(job.walltime_s));
  // That of all nodes together.
  if (job.node_memory_bytes > 0)
    text += fmt::format("#PBS -l mem={}mb\n", job.num_nodes * mebibytes(job.node_memory_bytes));
  return text;
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

std::string assignments(const std::string& scheduler, const Job& job, const fs::path& root) {
  std::string text = fmt::format("\nFINETUNE_ROOT={}\n", quoted(root.string()));
  // The next job needs it too.
  if (scheduler == "torque")
    text += fmt::format("export FINETUNE_CORES_PER_RANK={}\n", job.cores_per_rank);
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
  const std::string asked = directives(scheduler, job);
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
