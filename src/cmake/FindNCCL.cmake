# SPDX-License-Identifier: Apache-2.0
# Finds NCCL and defines NCCL::NCCL. Set NCCL_ROOT to the folder that holds include/ and lib/; the
# folder of the CUDA toolkit is searched too.

find_path(NCCL_INCLUDE_DIR nccl.h PATH_SUFFIXES include HINTS ${CUDAToolkit_INCLUDE_DIRS})
# Packages of the Python index have no development link.
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 PATH_SUFFIXES lib lib64
  HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION "")
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _line REGEX "#define NCCL_${_part} ")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" _number "${_line}")
    list(APPEND NCCL_VERSION ${_number})
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
