// SPDX-License-Identifier: Apache-2.0
// Ends a program on a processor for which it was not built with a message, where its first
// instruction that the processor lacks would end it with SIGILL. Compiled without these
// instructions, and run by the dynamic loader before any initialiser, ours or a library's.

#include <time.h>
#include <unistd.h>

#include "core/processor.hpp"
#include "processor_needs.hpp"

namespace finetune::app {
namespace {

/// Whether this process speaks for its node: all ranks of a node have the same to say. Launchers
/// number them; the first name counts, because mpirun in a job of Slurm's has the batch script's
/// too.
bool speaks_for_its_node(char** environment) {
  static const char* const names[] = {
      "OMPI_COMM_WORLD_LOCAL_RANK=", "MPI_LOCALRANKID=", "PALS_LOCAL_RANKID=", "SLURM_LOCALID="};
  for (const char* name : names) {
    for (char** entry = environment; *entry != nullptr; ++entry) {
      const char* letter = *entry;
      const char* expected = name;
      while (*expected != '\0' && *letter == *expected)
        ++letter, ++expected;
      if (*expected == '\0') return letter[0] == '0' && letter[1] == '\0';
    }
  }
  return true;
}

/// Not through the C++ library, of which nothing has begun yet.
void check_processor(int, char**, char** environment) {
  core::ProcessorFound found;
  found.instructions = core::instructions_here();
  if ((processor_needs.instructions & ~found.instructions) == 0) return;

  constexpr int environment_is_unfit = 69;
  if (!speaks_for_its_node(environment)) {
    // A launcher ends all ranks once one has ended: not before the one that speaks has spoken.
    const struct timespec pause { 5, 0 };
    ::nanosleep(&pause, nullptr);
    ::_exit(environment_is_unfit);
  }
  char host[256] = "this host";
  ::gethostname(host, sizeof(host) - 1);
  char name[49];
  core::processor_name(name);
  found.host = host;
  found.name = name;
  char text[2048];
  const std::size_t length = core::write_refusal(processor_needs, found, text, sizeof(text));
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, length);
  ::_exit(environment_is_unfit);
}

using Initialiser = void (*)(int, char**, char**);
__attribute__((section(".preinit_array"), used)) Initialiser first_initialiser = check_processor;

}  // namespace
}  // namespace finetune::app
