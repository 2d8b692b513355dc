# SPDX-License-Identifier: Apache-2.0
# What CMake says of a libtorch that is too old, or of another CUDA than the toolkit; on invented folders.
#   cmake -DWORK=FOLDER -P find_libtorch_test.cmake
cmake_minimum_required(VERSION 3.25)
set(finder ${CMAKE_CURRENT_LIST_DIR}/../../src/cmake/FindLibTorch.cmake)

if(CASE STREQUAL "version")
  set(LibTorch_INCLUDE_DIR ${WORK}/old/include)
  include(${finder})
elseif(CASE STREQUAL "cuda")
  set(CUDAToolkit_VERSION 13.0.88)
  set(CUDAToolkit_VERSION_MAJOR 13)
  set(CUDAToolkit_INCLUDE_DIRS /invented/include)
  include(${finder})
  finetune_find_cuda_of(${WORK}/${FOLDER}/lib "${NEEDED}")
  message(STATUS "CUDA of libtorch: ${LibTorch_CUDA_VERSION}.")
endif()
if(CASE)
  return()
endif()

set(failures 0)
# expect(what part arguments...): this script, run with these arguments, says `part`.
function(expect what part)
  execute_process(COMMAND ${CMAKE_COMMAND} -DWORK=${WORK} ${ARGN} -P ${CMAKE_SCRIPT_MODE_FILE}
    OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(NOT said MATCHES "${part}")
    message("FAILED: ${what}: \"${part}\" is not in: ${said}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/wheel12/lib ${WORK}/wheel13/lib ${WORK}/archive/lib ${WORK}/package/lib)
file(WRITE ${WORK}/old/include/torch/csrc/api/include/torch/version.h
  "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 8\n#define TORCH_VERSION_PATCH 1\n")
expect("an old one" "this is libtorch 2[.]8[.]1, and 2[.][0-9]+ is the oldest .* Set LibTorch_ROOT" -DCASE=version)

file(WRITE ${WORK}/wheel12/version.py "__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\n")
file(WRITE ${WORK}/wheel13/version.py "cuda: Optional[str] = '13.0'\n")
file(WRITE ${WORK}/archive/build-version "2.11.0+cu130\n")
set(other "was built for CUDA 12[.]8, and the toolkit in .* is 13[.]0[.]88[.] Set CUDAToolkit_ROOT to a toolkit of CUDA 12")
expect("a wheel for another CUDA" "${other}" -DCASE=cuda -DFOLDER=wheel12)
expect("a wheel" "CUDA of libtorch: 13[.]0[.]" -DCASE=cuda -DFOLDER=wheel13)
expect("an archive" "CUDA of libtorch: 13[.]0[.]" -DCASE=cuda -DFOLDER=archive)
expect("a package that only its libraries tell" "CUDA of libtorch: 13[.]" -DCASE=cuda -DFOLDER=package
  "-DNEEDED=[libcudart.so.13]")
expect("the same of another CUDA" "was built for CUDA 12, and" -DCASE=cuda -DFOLDER=package
  "-DNEEDED=[libcudart.so.12]")
if(failures GREATER 0)
  message(FATAL_ERROR "${failures} failed")
endif()
