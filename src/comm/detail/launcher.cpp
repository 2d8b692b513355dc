// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/launcher.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "comm/mpi/detail/mpi.hpp"

extern char** environ;

namespace finetune::comm {
namespace {

namespace fs = std::filesystem;

/// What the system calls a process; empty if there is none.
std::string name_of(pid_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  return name;
}

/// The watcher keeps nothing open: a launcher waits for the end of its ranks' output.
void close_all(posix_spawn_file_actions_t& actions) {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", ignored)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    if (descriptor > STDERR_FILENO) posix_spawn_file_actions_addclose(&actions, descriptor);
  }
}

}  // namespace

bool end_if_stuck(pid_t launcher, int grace_s) {
  constexpr std::array known = {"mpirun", "mpiexec", "orterun", "orted",
                                "prte",   "prted",   "prterun"};
  const std::string name = name_of(launcher);
  if (std::find(known.begin(), known.end(), name) == known.end()) return false;

  const char* script =
      "i=0; while [ $i -lt $3 ]; do"
      " read -r name </proc/$1/comm && [ \"$name\" = $2 ] || exit 0;"
      " sleep 1; i=$((i + 1)); done; kill -KILL $1";
  std::vector<std::string> words = {
      "sh", "-c", script, "finetune-end", std::to_string(launcher), name, std::to_string(grace_s)};
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  close_all(actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Out of the rank's process group, which the launcher kills.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t watcher = 0;
  const int error = ::posix_spawn(&watcher, "/bin/sh", &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0;
}

void abort_job(int code) {
  // Open MPI 4.1's mpirun may stop for ever while it ends a job (a lock in its PMIx server), and a
  // node then idles until its time is up.
  end_if_stuck(::getppid(), 30);
  // Should the launcher be gone, MPI_Abort has nobody to turn to.
  ::alarm(60);
  // Under srun each rank that fails would print MPI's own notice as well, which says less than the
  // error that is printed already; mpirun prints one for all.
  if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0)
    ::dup2(nowhere, STDERR_FILENO);
  MPI_Abort(MPI_COMM_WORLD, code);
}

}  // namespace finetune::comm
