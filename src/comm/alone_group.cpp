// SPDX-License-Identifier: Apache-2.0
#include "comm/alone_group.hpp"

#include "core/error.hpp"

namespace finetune::comm {
namespace {

Ticket refuse() {
  core::check(false, "a rank that is alone on an axis starts no collective there");
  return nothing_started;
}

}  // namespace

AloneGroup::AloneGroup(const Communicator& comm) : comm_(comm) {
  core::check(comm.size() == 1, "it has one rank");
}

Ticket AloneGroup::all_gather(core::DType, const void*, void*, std::int64_t) {
  return refuse();
}

Ticket AloneGroup::reduce_scatter(core::DType, const void*, void*, std::int64_t) {
  return refuse();
}

Ticket AloneGroup::all_reduce(core::DType, void*, std::int64_t) {
  return refuse();
}

Ticket AloneGroup::exchange(Exchange) {
  return refuse();
}

}  // namespace finetune::comm
