#pragma once
// SPDX-License-Identifier: Apache-2.0
// Makes groups over NCCL, in builds with and without CUDA.

#include <memory>

#include "comm/group.hpp"
#include "comm/nccl/detail/device_stream.hpp"

namespace finetune::comm {

/// A group over NCCL of the ranks of `comm`, on device memory of the device that is current. Its
/// unique id is made by the root of `comm` and broadcast. `exchange` is refused: it is for host
/// memory. Traffic is counted by the ring formulas, whatever algorithm NCCL chooses.
///
/// Not for hosts' clocks: nothing but `synchronize` waits for the device. An error that NCCL
/// reports aborts all communicators of the stream, so that kernels which wait for a lost rank end;
/// the next call throws it. The ranks are connected when this returns.
///
/// Collective on `comm`, whose ranks have each made their own device current (device.hpp).
/// Throws: AgreedError of ErrorKind::environment with NCCL's text, also in builds without CUDA.
std::unique_ptr<Group> make_nccl_group(const Communicator& comm,
                                       std::shared_ptr<DeviceStream> stream);

}  // namespace finetune::comm
