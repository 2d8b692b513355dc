// SPDX-License-Identifier: Apache-2.0
#include "optim/detail/unit_memory.hpp"

#include "schedule/pass.hpp"

namespace finetune::optim {

using shard::HostCopy;

UnitMemory::UnitMemory(shard::ModelShards& shards, bool by_kernels)
    : shards_(shards), by_kernels_(by_kernels) {}

void UnitMemory::fetch(int unit) {
  gradients_.emplace_back(shards_.gradient(unit), HostCopy::Contents::started);
}

at::Tensor UnitMemory::gradient(int unit) {
  if (gradients_.empty()) return shards_.gradient(unit);
  gradients_.front().wait();
  return gradients_.front().host();
}

bool UnitMemory::is_cast_by_kernel(int unit) const {
  const at::Tensor master = shards_.master(unit);
  return by_kernels_ && master.is_cpu() && !shards_.map().unit(unit).in_8_bits &&
         !shards_.published(unit).is_same(master);
}

at::Tensor UnitMemory::copy(int unit) {
  if (!is_cast_by_kernel(unit)) return {};
  while (copies_.size() >= schedule::units_on_their_way) {
    copies_.front().wait();
    copies_.pop_front();
  }
  const HostCopy& copy =
      copies_.emplace_back(shards_.published(unit), HostCopy::Contents::undefined);
  // Where no other dtype is computed in, no kernel casts.
  if (copy.host().scalar_type() == shards_.master(unit).scalar_type()) return {};
  return copy.host();
}

void UnitMemory::publish(int unit) {
  if (!gradients_.empty()) gradients_.pop_front();
  if (!is_cast_by_kernel(unit)) return shards_.publish(unit);
  HostCopy& copy = copies_.back();
  if (copy.host().scalar_type() == shards_.master(unit).scalar_type())
    copy.host().copy_(shards_.master(unit));
  shards_.publish(unit, copy);
}

}  // namespace finetune::optim
