// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_communicator.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "comm/agree.hpp"
#include "comm/cuda.hpp"

namespace finetune::comm {

struct NcclCommunicator::Handle {
  ncclComm_t comm = nullptr;
  int rank = 0;
  int size = 1;
  std::string name;
  mutable bool failed = false;  ///< abort rather than finish

  /// Throws ErrorKind::environment naming `call` if NCCL returned an error.
  void check(ncclResult_t code, std::string_view call) const {
    if (code == ncclSuccess) return;
    failed = true;
    std::string why = ncclGetErrorString(code);
    const char* details = ncclGetLastError(comm);
    if (details != nullptr && *details != '\0') why += fmt::format(": {}", details);
    core::fail(core::ErrorKind::environment,
               {fmt::format("{} on \"{}\", rank {} of {}", call, name, rank, size),
                "NCCL reports an error", why,
                "Look at the other ranks' output; NCCL_DEBUG=WARN says more."});
  }

  void check_async() const {
    ncclResult_t code = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &code), "ncclCommGetAsyncError");
    check(code, "a collective");
  }
};

namespace {

// wait() looks for errors this often: seldom enough to cost nothing, often enough for people.
constexpr std::chrono::microseconds poll_interval{50};

ncclDataType_t nccl_type(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32:
      return ncclFloat32;
    case core::DType::bf16:
      return ncclBfloat16;
    case core::DType::f16:
      return ncclFloat16;
    case core::DType::f64:
      return ncclFloat64;
    case core::DType::i64:
      return ncclInt64;
    default:
      core::check(false, "NCCL reduces f32, bf16, f16, f64 and i64");
      return ncclInt8;
  }
}

ncclRedOp_t nccl_op(Reduce op) {
  switch (op) {
    case Reduce::min:
      return ncclMin;
    case Reduce::max:
      return ncclMax;
    default:
      return ncclSum;
  }
}

std::size_t nccl_count(std::int64_t count) {
  core::check(count >= 0, "a collective moves no negative number of elements");
  return static_cast<std::size_t>(count);
}

cudaStream_t cuda_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

NcclCommunicator::NcclCommunicator(const Communicator& comm) : handle_(std::make_unique<Handle>()) {
  handle_->rank = comm.rank();
  handle_->size = comm.size();
  handle_->name = comm.name();
  ncclUniqueId id{};
  agree_all(comm, [&] {
    if (comm.is_root()) handle_->check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  });
  comm.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  handle_->check(ncclCommInitRank(&handle_->comm, comm.size(), id, comm.rank()),
                 "ncclCommInitRank");
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_->comm == nullptr) return;
  // A destructor has nobody to tell, and the job is ending in either case.
  if (handle_->failed || std::uncaught_exceptions() > 0) {
    ncclCommAbort(handle_->comm);
  } else {
    ncclCommDestroy(handle_->comm);
  }
}

int NcclCommunicator::rank() const {
  return handle_->rank;
}

int NcclCommunicator::size() const {
  return handle_->size;
}

void NcclCommunicator::all_gather(core::DType dtype, const void* shard, void* full,
                                  std::int64_t count, void* stream) {
  // Nothing is added up, so bytes will do for every dtype.
  const std::size_t bytes = nccl_count(count * core::size_bytes(dtype));
  handle_->check(ncclAllGather(shard, full, bytes, ncclUint8, handle_->comm, cuda_stream(stream)),
                 "ncclAllGather");
}

void NcclCommunicator::reduce_scatter(core::DType dtype, const void* full, void* shard,
                                      std::int64_t count, void* stream) {
  handle_->check(ncclReduceScatter(full, shard, nccl_count(count), nccl_type(dtype), ncclSum,
                                   handle_->comm, cuda_stream(stream)),
                 "ncclReduceScatter");
}

void NcclCommunicator::all_reduce(core::DType dtype, void* values, std::int64_t count, Reduce op,
                                  void* stream) {
  handle_->check(ncclAllReduce(values, values, nccl_count(count), nccl_type(dtype), nccl_op(op),
                               handle_->comm, cuda_stream(stream)),
                 "ncclAllReduce");
}

void NcclCommunicator::check() const {
  handle_->check_async();
}

void NcclCommunicator::wait(void* stream) const {
  for (;;) {
    const cudaError_t status = cudaStreamQuery(cuda_stream(stream));
    handle_->check_async();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) {
      handle_->failed = true;
      check_cuda(status, "cudaStreamQuery");
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

}  // namespace finetune::comm
