// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/program.hpp"

#include <exception>

#include "preflight/detail/files.hpp"

namespace finetune::preflight {

std::string program_hash() {
  try {
    return sampled_hash("/proc/self/exe", whole_file_bytes);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace finetune::preflight
