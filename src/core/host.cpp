// SPDX-License-Identifier: Apache-2.0
#include "core/host.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace finetune::core {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

void raise_file_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

void survive_file_size_limit() {
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace finetune::core
