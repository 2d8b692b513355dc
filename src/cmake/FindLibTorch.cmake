# SPDX-License-Identifier: Apache-2.0
# Finds libtorch's headers and libraries and defines finetune::torch. With COMPONENTS CUDA, which needs
# find_package(CUDAToolkit) before it, its CUDA part too.
#
# Torch's own package is not used: on a CUDA wheel it insists on a CUDA toolkit, and it links
# libtorch.so, which pulls CUDA into CPU builds. Set LibTorch_ROOT to the folder that holds
# include/ and lib/ (in a pip installation: <target>/torch). Needs find_package(fmt) before it.

# finetune_find_cuda_of(folder needed): sets LibTorch_CUDA_VERSION, the CUDA that the libtorch in `folder` was built for
# and that decides which driver it needs: as the wheel or the archive says it, else the major version that it is linked with
# (`needed`). The toolkit's headers must have the same major version.
function(finetune_find_cuda_of folder needed)
  set(_version "")
  if(needed MATCHES "libcudart[.]so[.]([0-9]+)")
    set(_version ${CMAKE_MATCH_1})
  endif()
  if(EXISTS ${folder}/../version.py)
    file(STRINGS ${folder}/../version.py _line REGEX "^cuda[ :=]")
    if(_line MATCHES "'([0-9]+[.][0-9]+)'")
      set(_version ${CMAKE_MATCH_1})
    endif()
  elseif(EXISTS ${folder}/../build-version)
    file(READ ${folder}/../build-version _line)
    if(_line MATCHES "[+]cu([0-9]+)([0-9])")
      set(_version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
    endif()
  endif()
  string(REGEX MATCH "^[0-9]+" _major "${_version}")
  if(_major AND NOT _major EQUAL CUDAToolkit_VERSION_MAJOR)
    message(FATAL_ERROR "${folder}: this libtorch was built for CUDA ${_version}, and the toolkit in "
      "${CUDAToolkit_INCLUDE_DIRS} is ${CUDAToolkit_VERSION}. Set CUDAToolkit_ROOT to a toolkit of CUDA ${_major}, or "
      "LibTorch_ROOT to a libtorch for CUDA ${CUDAToolkit_VERSION_MAJOR}.")
  endif()
  set(LibTorch_CUDA_VERSION "${_version}" PARENT_SCOPE)
endfunction()

set(LibTorch_CUDA_VERSION "")
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATH_SUFFIXES include)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATH_SUFFIXES lib)
find_library(LibTorch_C10_LIBRARY c10 PATH_SUFFIXES lib)
# The oldest that this compiles with; of its CUDA builds the one for CUDA 12.8 is tested.
set(LibTorch_OLDEST 2.10)
if(LibTorch_INCLUDE_DIR)
  set(LibTorch_VERSION "")
  set(_header ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  if(NOT EXISTS ${_header}) # older ones
    set(_header ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)
  endif()
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS ${_header} _line REGEX "#define TORCH_VERSION_${_part} ")
    string(REGEX REPLACE ".* ([0-9]+)$" "\\1" _number "${_line}")
    list(APPEND LibTorch_VERSION ${_number})
  endforeach()
  list(JOIN LibTorch_VERSION "." LibTorch_VERSION)
  if(LibTorch_VERSION VERSION_LESS LibTorch_OLDEST)
    message(FATAL_ERROR "${LibTorch_INCLUDE_DIR}: this is libtorch ${LibTorch_VERSION}, and ${LibTorch_OLDEST} is the "
      "oldest that has what finetune calls. Set LibTorch_ROOT to a newer one (spack/README.md says where they come from).")
  endif()
endif()

set(_required LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR)
if("CUDA" IN_LIST LibTorch_FIND_COMPONENTS)
  find_library(LibTorch_CUDA_LIBRARY torch_cuda PATH_SUFFIXES lib)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATH_SUFFIXES lib)
  list(APPEND _required LibTorch_CUDA_LIBRARY LibTorch_C10_CUDA_LIBRARY)
  # Some builds of libtorch_cuda are linked with libraries that a CUDA toolkit need not have. In a
  # pip installation they are beside torch: nvidia-cufile, nvidia-cusparselt-cu13 and nvidia-nvshmem-cu13, or for
  # CUDA 12 nvidia-cufile-cu12 and so on.
  set(_needed "")
  if(LibTorch_CUDA_LIBRARY)
    get_filename_component(_folder ${LibTorch_CUDA_LIBRARY} DIRECTORY)
    file(GLOB _linked ${_folder}/libtorch_cuda.so ${_folder}/libtorch_nvshmem.so)
    execute_process(COMMAND ${CMAKE_READELF} -d ${_linked} OUTPUT_VARIABLE _needed)
    finetune_find_cuda_of(${_folder} "${_needed}")
  endif()
  file(GLOB _beside ${LibTorch_INCLUDE_DIR}/../../nvidia/*/lib)
  set(LibTorch_CUDA_FOLDERS "")
  foreach(_name cufile cusparseLt nvshmem_host)
    if(_needed MATCHES "(lib${_name}[.]so[.0-9]*)")
      set(_variable LibTorch_${_name}_LIBRARY)
      find_library(${_variable} NAMES ${CMAKE_MATCH_1} ${_name}
        HINTS ${_beside} ${CUDAToolkit_LIBRARY_DIR})
      list(APPEND _required ${_variable})
      get_filename_component(_folder "${${_variable}}" DIRECTORY)
      list(APPEND LibTorch_CUDA_FOLDERS ${_folder})
    endif()
  endforeach()
  set(LibTorch_CUDA_FOUND ${LibTorch_CUDA_LIBRARY})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS ${_required} VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET finetune::torch)
  add_library(finetune_torch INTERFACE)
  add_library(finetune::torch ALIAS finetune_torch)
  # The wheel carries its own copy of fmt's headers among torch's. Ours must be found first, or a file
  # that uses both would be compiled against a fmt that nobody links.
  get_target_property(_fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  list(GET _fmt_include 0 _fmt_include)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fmt_first)
  file(CREATE_LINK ${_fmt_include}/fmt ${CMAKE_BINARY_DIR}/fmt_first/fmt SYMBOLIC)
  target_include_directories(finetune_torch SYSTEM INTERFACE
    ${CMAKE_BINARY_DIR}/fmt_first ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(finetune_torch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  # at::parallel_for is a header template over the OpenMP pool that libtorch_cpu itself uses; the
  # pragma must be compiled in, or every kernel would run on one thread.
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_compile_options(finetune_torch INTERFACE ${OpenMP_CXX_FLAGS})
  target_link_options(finetune_torch INTERFACE ${OpenMP_CXX_FLAGS})
  if(LibTorch_CUDA_LIBRARY AND "CUDA" IN_LIST LibTorch_FIND_COMPONENTS)
    # Nothing calls libtorch_cuda by name: it enters its kernels into a table when it is loaded, so
    # the linker must keep it.
    target_link_libraries(finetune_torch INTERFACE CUDA::cudart
      "-Wl,--push-state,--no-as-needed,${LibTorch_CUDA_LIBRARY},${LibTorch_C10_CUDA_LIBRARY},--pop-state")
    # libtorch_cuda's own search path does not know this toolkit's cuBLAS, cuDNN and so on. Old tags:
    # a RUNPATH would count for the program alone and not for the libraries it loads.
    target_link_options(finetune_torch INTERFACE -Wl,--disable-new-dtags)
    foreach(_folder IN LISTS LibTorch_CUDA_FOLDERS CUDAToolkit_LIBRARY_DIR)
      target_link_options(finetune_torch INTERFACE -Wl,-rpath,${_folder})
    endforeach()
  endif()
endif()
