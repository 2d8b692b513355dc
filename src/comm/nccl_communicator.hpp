#pragma once
// SPDX-License-Identifier: Apache-2.0
// The collectives of a Communicator on device memory, by NCCL.

#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"
#include "core/dtype.hpp"

namespace finetune::comm {

/// A NCCL communicator over the same ranks as a Communicator, which it uses to start.
///
/// Pointers are device memory of the device that was current at construction; `stream` is a
/// cudaStream_t. The functions only put work on `stream`: wait() for it, or order other work behind
/// it on the same stream. They are collective on the communicator, counts are elements.
/// Throws: ErrorKind::environment if NCCL or CUDA reports an error, and in builds without CUDA.
class NcclCommunicator {
 public:
  /// Collective on `comm`, whose ranks have each made their own device current (device.hpp).
  explicit NcclCommunicator(const Communicator& comm);
  /// Waits for what was started; after an error, or while an exception unwinds, aborts it instead,
  /// since the other ranks may never come.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const;
  int size() const;

  /// Shapes: shard [count] -> full [size() * count], in rank order. In place if `shard` points at
  /// this rank's part of `full`. Any dtype.
  void all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count,
                  void* stream);
  /// Sums over ranks. Shapes: full [size() * count] -> shard [count]. f32, bf16, f16, f64, i64.
  void reduce_scatter(core::DType dtype, const void* full, void* shard, std::int64_t count,
                      void* stream);
  /// In place. f32, bf16, f16, f64, i64.
  void all_reduce(core::DType dtype, void* values, std::int64_t count, Reduce op, void* stream);

  /// Throws if NCCL met an error since the last call, for example because another rank died.
  /// Not collective; for whoever waits by other means than wait().
  void check() const;

  /// Blocks until everything on `stream` is done, looking for NCCL's errors meanwhile.
  void wait(void* stream) const;

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace finetune::comm
