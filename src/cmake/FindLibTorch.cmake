# SPDX-License-Identifier: Apache-2.0
# Finds libtorch's headers and libraries and defines finetune::torch.
#
# Torch's own package is not used: on a CUDA wheel it insists on a CUDA toolkit, and it links
# libtorch.so, which pulls CUDA into CPU builds. Set LibTorch_ROOT to the folder that holds
# include/ and lib/ (in a pip installation: <target>/torch).

find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATH_SUFFIXES include)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATH_SUFFIXES lib)
find_library(LibTorch_C10_LIBRARY c10 PATH_SUFFIXES lib)
if(LibTorch_INCLUDE_DIR)
  set(LibTorch_VERSION "")
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h _line
      REGEX "#define TORCH_VERSION_${_part} ")
    string(REGEX REPLACE ".* ([0-9]+)$" "\\1" _number "${_line}")
    list(APPEND LibTorch_VERSION ${_number})
  endforeach()
  list(JOIN LibTorch_VERSION "." LibTorch_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET finetune::torch)
  add_library(finetune_torch INTERFACE)
  add_library(finetune::torch ALIAS finetune_torch)
  target_include_directories(finetune_torch SYSTEM INTERFACE
    ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(finetune_torch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  # at::parallel_for is a header template over the OpenMP pool that libtorch_cpu itself uses; the
  # pragma must be compiled in, or every kernel would run on one thread.
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_compile_options(finetune_torch INTERFACE ${OpenMP_CXX_FLAGS})
  target_link_options(finetune_torch INTERFACE ${OpenMP_CXX_FLAGS})
endif()
