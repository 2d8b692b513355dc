// SPDX-License-Identifier: Apache-2.0
// group_factory.hpp in a build without CUDA: nothing can be made.
#include "comm/group_factory.hpp"
#include "comm/versions.hpp"
#include "core/error.hpp"

namespace finetune::comm {
namespace {

[[noreturn]] void fail_without_nccl() {
  core::fail(core::ErrorKind::environment,
             {"NCCL", "this program was built without CUDA", "NCCL moves device memory only",
              "Build it with -DFINETUNE_WITH_CUDA=ON."});
}

}  // namespace

std::string nccl_version() {
  return {};
}

std::unique_ptr<Group> make_nccl_group(const Communicator&, std::shared_ptr<DeviceStream>) {
  fail_without_nccl();
}

}  // namespace finetune::comm
