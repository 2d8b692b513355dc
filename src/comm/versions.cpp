// SPDX-License-Identifier: Apache-2.0
#include "comm/versions.hpp"

#include "comm/mpi/detail/mpi.hpp"

namespace finetune::comm {

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string all = text;
  return all.substr(0, all.find_first_of("\n,"));
}

}  // namespace finetune::comm
