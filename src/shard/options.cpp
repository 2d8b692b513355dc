// SPDX-License-Identifier: Apache-2.0
#include "shard/options.hpp"

#include "comm/group_factory.hpp"
#include "comm/mpi_group.hpp"
#include "core/error.hpp"
#include "shard/compute_stream.hpp"

namespace finetune::shard {

Groups make_groups(const world::World& world, bool overlap) {
  if (world.device.index >= 0) {
    const auto stream = std::make_shared<comm::DeviceStream>(compute_stream);
    return {.fsdp = comm::make_nccl_group(world.fsdp, stream),
            .dp_replicate = comm::make_nccl_group(world.dp_replicate, stream)};
  }
  const bool is_behind = overlap && world.batch.size() > 1;
  const auto worker = std::make_shared<comm::Worker>(is_behind ? comm::Worker::Where::behind
                                                               : comm::Worker::Where::inline_);
  return {.fsdp = std::make_shared<comm::MpiGroup>(world.fsdp, worker),
          .dp_replicate = std::make_shared<comm::MpiGroup>(world.dp_replicate, worker)};
}

Groups one_copy(const comm::Communicator& fsdp) {
  const auto worker = std::make_shared<comm::Worker>(
      fsdp.size() > 1 ? comm::Worker::Where::behind : comm::Worker::Where::inline_);
  return {.fsdp = std::make_shared<comm::MpiGroup>(fsdp, worker),
          .dp_replicate = std::make_shared<comm::MpiGroup>(comm::Communicator(), worker)};
}

at::ScalarType to_aten(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32:
      return at::kFloat;
    case core::DType::bf16:
      return at::kBFloat16;
    case core::DType::f16:
      return at::kHalf;
    case core::DType::i64:
      return at::kLong;
    case core::DType::i32:
      return at::kInt;
    case core::DType::u8:
      return at::kByte;
    default:
      core::check(false, "weights are f32, bf16, f16 or packed");
      return at::kFloat;
  }
}

}  // namespace finetune::shard
