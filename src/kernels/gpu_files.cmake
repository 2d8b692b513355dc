# SPDX-License-Identifier: Apache-2.0
# The files whose kernels also run on GPUs. All others compute on the host alone.
set(FINETUNE_GPU_KERNELS adamw.cpp adamw8bit.cpp cross_entropy.cpp dropout.cpp ema.cpp embedding.cpp exact_squares.cpp
  fixed_point.cpp gptq.cpp lion.cpp magnitudes.cpp nf4_dequantize.cpp rms_norm.cpp rope.cpp schedule_free.cpp
  swiglu.cpp)
# These round after each operation as written, whatever the compiler would fuse: the same bits on every machine.
set(FINETUNE_KERNELS_AS_WRITTEN adamw.cpp adamw8bit.cpp ema.cpp gptq.cpp lion.cpp nf4_dequantize.cpp schedule_free.cpp)

# finetune_kernels_for_gpus(target ...): the object library `target` of these files as CUDA, against a Kokkos with CUDA
# that the caller adds. The arguments after it are options of the host's compiler, which nvcc hands on.
function(finetune_kernels_for_gpus target)
  set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  list(TRANSFORM FINETUNE_GPU_KERNELS PREPEND ${folder}/ OUTPUT_VARIABLE files)
  list(APPEND files ${folder}/detail/gpu_spaces.cpp)
  add_library(${target} OBJECT ${files})
  set_source_files_properties(${files} PROPERTIES LANGUAGE CUDA)
  foreach(file IN LISTS FINETUNE_KERNELS_AS_WRITTEN)
    set_source_files_properties(${folder}/${file} PROPERTIES COMPILE_OPTIONS "-Xcompiler=-ffp-contract=off;-fmad=false")
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD OFF POSITION_INDEPENDENT_CODE ON DISABLE_PRECOMPILE_HEADERS ON)
  target_include_directories(${target} PRIVATE ${folder}/..)
  list(JOIN ARGN "," host)
  # By its name: CMake 3.25 does not know that nvcc 13 has C++20.
  target_compile_options(${target} PRIVATE -std=c++20 --extended-lambda --expt-relaxed-constexpr -O3 -Xcompiler=${host})
endfunction()
