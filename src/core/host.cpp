// SPDX-License-Identifier: Apache-2.0
#include "core/host.hpp"

#include <unistd.h>

#include <array>

namespace finetune::core {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace finetune::core
