// SPDX-License-Identifier: Apache-2.0
// nccl_communicator.hpp in a build without CUDA: it cannot be constructed.
#include "comm/nccl_communicator.hpp"
#include "core/error.hpp"

namespace finetune::comm {

struct NcclCommunicator::Handle {};

NcclCommunicator::NcclCommunicator(const Communicator&) {
  core::fail(core::ErrorKind::environment,
             {"NCCL", "this program was built without CUDA", "NCCL moves device memory only",
              "Build it with -DFINETUNE_WITH_CUDA=ON."});
}

NcclCommunicator::~NcclCommunicator() = default;

// Never reached: there is no object to call them on.
int NcclCommunicator::rank() const {
  return 0;
}
int NcclCommunicator::size() const {
  return 1;
}
void NcclCommunicator::all_gather(core::DType, const void*, void*, std::int64_t, void*) {}
void NcclCommunicator::reduce_scatter(core::DType, const void*, void*, std::int64_t, void*) {}
void NcclCommunicator::all_reduce(core::DType, void*, std::int64_t, Reduce, void*) {}
void NcclCommunicator::check() const {}
void NcclCommunicator::wait(void*) const {}

}  // namespace finetune::comm
