// SPDX-License-Identifier: Apache-2.0
#include "support/run_program.hpp"
#include "support/folders.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

/// The parent of process `pid`; 0 if it has gone. /proc/PID/stat: "pid (name) state parent ...",
/// where the name may hold anything.
pid_t parent_of(const std::string& pid) {
  std::string text;
  std::getline(std::ifstream("/proc/" + pid + "/stat"), text);
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos ? 0 : std::atoi(text.c_str() + name_end + 4);
}

/// `root` and all that descend from it. mpirun gives every rank a process group of its own, so
/// killing a group would not reach them.
std::vector<pid_t> family_of(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name.front())) != 0)
      children.emplace(parent_of(name), std::atoi(name.c_str()));
  }
  std::vector<pid_t> family = {root};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = children.equal_range(family[i]);
    for (auto child = first; child != last; ++child)
      family.push_back(child->second);
  }
  return family;
}

}  // namespace

bool Outcome::ended_with(int code) const {
  return !timed_out &&
         (exit_code == code || exit_code == 128 + SIGSEGV || exit_code == 128 + SIGKILL);
}

Process::Process(const std::vector<std::string>& words, const fs::path& folder,
                 std::chrono::seconds life)
    : end_(std::chrono::steady_clock::now() + life) {
  std::vector<char*> argv;
  for (const std::string& word : words)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::array<std::array<int, 2>, 2> pipes{};
  for (int i = 0; i < 2; ++i) {
    require(::pipe2(pipes[i].data(), O_CLOEXEC) == 0, "a pipe cannot be made");
    posix_spawn_file_actions_adddup2(&actions, pipes[i][1], STDOUT_FILENO + i);
  }
  const int error = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  for (int i = 0; i < 2; ++i) {
    ::close(pipes[i][1]);
    streams_[i] = pipes[i][0];
    ::fcntl(streams_[i], F_SETFL, O_NONBLOCK);
  }
  require(error == 0, words.front() + " cannot be started in " + folder.string());
}

Process::~Process() {
  if (pid_ > 0) {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int stream : streams_)
    if (stream >= 0) ::close(stream);
}

void Process::kill() {
  const std::vector<pid_t> family = family_of(pid_);
  std::vector<pollfd> ends;
  for (const pid_t pid : family)
    ends.push_back({static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
  // Ranks first: mpirun must not get the time to end them in a gentler way.
  for (auto pid = family.rbegin(); pid != family.rend(); ++pid)
    ::kill(*pid, SIGKILL);
  // What is killed holds its locks and files until it has ended, on a busy machine for a while.
  for (pollfd& end : ends) {
    if (end.fd < 0) continue;
    while (::poll(&end, 1, -1) < 0 && errno == EINTR) {
    }
    ::close(end.fd);
  }
}

bool Process::read_for(int ms) {
  if (pid_ > 0 && !is_overdue_ && std::chrono::steady_clock::now() > end_) {
    is_overdue_ = true;
    kill();
  }
  std::array<pollfd, 2> polled = {pollfd{streams_[0], POLLIN, 0}, pollfd{streams_[1], POLLIN, 0}};
  ::poll(polled.data(), polled.size(), ms);
  for (int i = 0; i < 2; ++i) {
    std::array<char, 1 << 16> buffer;
    while (streams_[i] >= 0) {
      const auto n = ::read(streams_[i], buffer.data(), buffer.size());
      if (n < 0) break;  // nothing now
      text_[i].append(buffer.data(), static_cast<std::size_t>(n));
      if (n == 0) ::close(std::exchange(streams_[i], -1));
    }
  }
  return streams_[0] >= 0 || streams_[1] >= 0;
}

Outcome Process::wait(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  Outcome outcome;
  while (read_for(50)) {
    if (std::chrono::steady_clock::now() < end) continue;
    outcome.timed_out = true;
    kill();
    break;
  }
  int status = 0;
  rusage usage{};
  ::wait4(std::exchange(pid_, -1), &status, 0, &usage);
  outcome.timed_out = outcome.timed_out || is_overdue_;
  outcome.peak_bytes = std::int64_t{usage.ru_maxrss} << 10;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = text_[0];
  outcome.err = text_[1];
  return outcome;
}

Outcome run_program(const std::vector<std::string>& words, const fs::path& folder,
                    std::chrono::seconds limit) {
  return Process(words, folder).wait(limit);
}

std::vector<std::string> mpirun(int ranks) {
  // Where a rank ends with another code than 0, Open MPI gives the others a second to end. These
  // have ended together: every run that is refused would take a second longer for nothing.
  return {"env", "OMPI_MCA_odls_base_sigkill_timeout=0",
          source_folder() / "tests/support/mpirun.sh", std::to_string(ranks)};
}

std::vector<std::string> finetune_on(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  if (ranks > 1) words = mpirun(ranks);
  words.emplace_back(build_folder() / "finetune");
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

fs::path empty_folder(const std::string& name) {
  const fs::path folder = build_folder() / "tests" / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

}  // namespace finetune::tests
