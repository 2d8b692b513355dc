// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/detail/point_to_point.hpp"

namespace finetune::comm {
namespace {

constexpr int tag_of_parts = 1;

}  // namespace

MPI_Request PointToPoint::send(const void* data, std::int64_t bytes, int to) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag_of_parts, comm_, &request),
            "MPI_Isend");
  return request;
}

MPI_Request PointToPoint::receive(void* data, std::int64_t bytes, int from) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag_of_parts, comm_, &request),
            "MPI_Irecv");
  return request;
}

void PointToPoint::finish(std::span<MPI_Request> requests) const {
  comm::finish(requests, "MPI_Testall", [this] { check_wanted(); });
}

void PointToPoint::check_wanted() const {
  core::check(!worker_.is_abandoned(), "the run ends while ranks communicate");
}

void PointToPoint::progress() const {
  // MPI moves messages inside its calls only, and this one asks for nothing.
  int is_there = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag_of_parts, comm_, &is_there, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
  check_wanted();
}

}  // namespace finetune::comm
