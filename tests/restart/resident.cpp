// SPDX-License-Identifier: Apache-2.0
// finetune_resident FOLDER: one rank of processes that stay, and run the program whenever they are
// asked to (support/residence.hpp): what to run are lines of JSON from the pipe FOLDER/rank-R.
// Output goes to FOLDER/stdout and FOLDER/stderr; the first rank prints the exit code.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "allocator.hpp"
#include "cli.hpp"
#include "comm/environment.hpp"
#include "core/cores.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/log_file.hpp"
#include "ending.hpp"
#include "launch.hpp"
#include "metrics/memory.hpp"
#include "train/run/stop.hpp"

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

/// The environment of a process that a launcher started as one of `ranks`, or a shell alone.
void set_variables(int rank, int ranks, const core::Json& given) {
  for (const char* name : {"OMP_NUM_THREADS", "FINETUNE_FAULT"}) {
    if (given.contains(name))
      ::setenv(name, given[name].get<std::string>().c_str(), 1);
    else
      ::unsetenv(name);
  }
  const std::array of_launcher = {std::pair("OMPI_COMM_WORLD_SIZE", ranks),
                                  std::pair("OMPI_COMM_WORLD_RANK", rank)};
  for (const auto& [name, value] : of_launcher) {
    if (ranks > 1)
      ::setenv(name, std::to_string(value).c_str(), 1);
    else
      ::unsetenv(name);
  }
  // As support/mpirun.sh sets it.
  if (ranks > 1) ::setenv("OMP_NUM_THREADS", "1", 0);
}

/// All that a process holds once, as it is in one that has just started. Variables are set.
void begin_anew() {
  log::forget();
  core::fault::reset();
  train::forget_signals();
  metrics::tell_uses_together();
  metrics::reset_peak();
  // The highest of resident memory (Linux).
  std::ofstream("/proc/self/clear_refs") << 5;
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  const char* told = std::getenv("OMP_NUM_THREADS");
  at::set_num_threads(told != nullptr && std::atoi(told) > 0
                          ? std::atoi(told)
                          : static_cast<int>(core::own_cores().size()));
}

/// What this process prints goes to files for as long as this lives.
class Output {
 public:
  explicit Output(const fs::path& folder) {
    flush();
    for (const auto& [stream, name] :
         {std::pair(STDOUT_FILENO, "stdout"), std::pair(STDERR_FILENO, "stderr")}) {
      before_.push_back(::fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
      const int file = ::open((folder / name).c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
      core::check(file >= 0 && ::dup2(file, stream) == stream, "output goes to files");
      ::close(file);
    }
  }
  ~Output() {
    flush();
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      ::dup2(before_[static_cast<std::size_t>(stream - STDOUT_FILENO)], stream);
      ::close(before_[static_cast<std::size_t>(stream - STDOUT_FILENO)]);
    }
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

 private:
  static void flush() {
    std::cout.flush();
    std::fflush(nullptr);
  }
  std::vector<int> before_;
};

/// As main() of the program does, on the ranks of `part`.
int run(const comm::Communicator& part, const core::Json& wish) {
  set_variables(part.rank(), part.size(), wish["variables"]);
  auto words = wish["arguments"].get<std::vector<std::string>>();
  words.insert(words.begin(), "finetune");
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(words.size());
  fs::current_path(wish["folder"].get<std::string>());
  begin_anew();
  if (!app::needs_ranks(argc, argv.data())) return app::launch(argc, argv.data());
  app::prepare_ranks(argc, argv.data());
  const comm::Environment env(part);
  return app::launch(env, argc, argv.data());
}

/// The first ranks of the job, by how many they are; this rank's place in each.
std::vector<comm::Communicator> parts_of(const comm::Communicator& job) {
  std::vector<comm::Communicator> parts;
  for (int ranks = 1; ranks <= job.size(); ++ranks)
    parts.push_back(job.split(job.rank() < ranks ? 0 : 1, job.rank(), "part"));
  return parts;
}

void reside(const comm::Communicator& job, const fs::path& folder) {
  const auto parts = parts_of(job);
  // Whoever has nothing to do sleeps here, and costs no core any time.
  std::ifstream pipe(folder / ("rank-" + std::to_string(job.rank())));
  for (std::string line; std::getline(pipe, line);) {
    const core::Json wish = core::parse_json(line, "what to run");
    const auto& part = parts[wish["ranks"].get<std::size_t>() - 1];
    std::int64_t code = 0;
    {
      const Output output(folder);
      code = run(part, wish);
    }
    // Launchers end with the code of a rank that fails.
    code = part.all_reduce(code, comm::Reduce::max);
    if (job.is_root()) std::printf("%d\n", static_cast<int>(code));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace finetune::tests

int main(int argc, char** argv) {
  using namespace finetune;
  if (argc != 2) return static_cast<int>(core::ErrorKind::command_line);
  app::end_without_unloading();
  app::keep_freed_memory();
  app::bound_kept_products();
  metrics::count_tensor_bytes();
  const std::filesystem::path folder = argv[1];
  const comm::Environment env(argc, argv);
  tests::reside(env.world(), folder);
  return 0;
}
