# SPDX-License-Identifier: Apache-2.0
# What every library and every test of the project has in common.

add_library(finetune_options INTERFACE)
# GCC 12 sees overlapping copies in std::string concatenations that cannot overlap (GCC bug 105651).
target_compile_options(finetune_options INTERFACE -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<BOOL:${FINETUNE_WERROR}>:-Werror>)
if(FINETUNE_ARCH)
  target_compile_options(finetune_options INTERFACE -march=${FINETUNE_ARCH})
endif()
if(FINETUNE_SANITIZE)
  target_compile_options(finetune_options INTERFACE
    -fsanitize=${FINETUNE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(finetune_options INTERFACE -fsanitize=${FINETUNE_SANITIZE})
endif()

# finetune_library(core PUBLIC ... PRIVATE ...): completes the library target finetune_<name> under
# the alias finetune::<name>, with src/ as include root.
function(finetune_library name)
  add_library(finetune::${name} ALIAS finetune_${name})
  target_include_directories(finetune_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(finetune_${name} ${ARGN} PRIVATE finetune_options)
endfunction()

# finetune_use_aten(target): links libtorch and shares one precompiled header for its heavy headers.
function(finetune_use_aten target)
  target_link_libraries(${target} PRIVATE finetune_options finetune::torch)
  if(NOT TARGET finetune_aten_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/aten_pch.cpp "")
    add_library(finetune_aten_pch OBJECT ${CMAKE_BINARY_DIR}/aten_pch.cpp)
    target_link_libraries(finetune_aten_pch PRIVATE finetune_options finetune::torch)
    target_precompile_headers(finetune_aten_pch PRIVATE
      <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM finetune_aten_pch)
endfunction()

# finetune_add_test(unit/core SOURCES a.cpp ... LIBRARIES finetune::core ... [RANKS 1 2 4]
#                   [ATEN] [TIMEOUT s] [LABELS ...])
# Without RANKS: a plain GoogleTest program, one ctest. With RANKS: linked with the MPI main, one
# ctest a rank count, named unit/core.r2 and so on; ranks beyond the cores run oversubscribed.
# With FINETUNE_SANITIZE: named sanitized/unit/core... (threads/unit/comm... with the thread sanitizer),
# on two ranks at most, and built by the target sanitized_tests.
function(finetune_add_test name)
  cmake_parse_arguments(arg "ATEN" "TIMEOUT" "SOURCES;LIBRARIES;RANKS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  string(REPLACE "/" "_" target test_${name})
  add_executable(${target} ${arg_SOURCES})
  if(FINETUNE_SANITIZE)
    if(NOT TARGET sanitized_tests)
      add_custom_target(sanitized_tests)
    endif()
    add_dependencies(sanitized_tests ${target})
    if(FINETUNE_SANITIZE STREQUAL thread)
      string(PREPEND name "threads/")
    else()
      string(PREPEND name "sanitized/")
    endif()
    list(APPEND arg_LABELS sanitized)
    list(FILTER arg_RANKS EXCLUDE REGEX "^([3-9]|[0-9][0-9]+)$")
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
    # The slow unwinder sees through Open MPI's frames, which the suppressions name. libtorch is not
    # instrumented, so the bounds of containers it shares with us are not marked.
    set(environment
      "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0"
      "ASAN_OPTIONS=fast_unwind_on_malloc=0:detect_container_overflow=0"
      "UBSAN_OPTIONS=print_stacktrace=1"
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp:print_suppressions=0:ignore_noninstrumented_modules=1")
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    FINETUNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FINETUNE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} finetune_options)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(arg_ATEN)
    finetune_use_aten(${target})
  else()
    # What is tested is optimised; the tests themselves need to compile fast. (The precompiled header of
    # the others fits its own level of optimisation only.)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(NOT arg_RANKS)
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
    return()
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
  target_link_libraries(${target} PRIVATE finetune::comm GTest::gtest)
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.r${ranks}
      COMMAND ${PROJECT_SOURCE_DIR}/tests/support/mpirun.sh ${ranks} $<TARGET_FILE:${target}>)
    # What Open MPI holds when a rank ends depends on when the last messages of the others came, so its
    # leaks come and go with the load; and the leak sanitizer stops a process by ptrace, which fails now
    # and then under mpirun. Leaks are looked for in the tests without ranks.
    set(rank_environment ${environment})
    list(TRANSFORM rank_environment REPLACE "^(ASAN_OPTIONS=.*)$" "\\1:detect_leaks=0")
    set_tests_properties(${name}.r${ranks} PROPERTIES
      PROCESSORS ${ranks} TIMEOUT ${arg_TIMEOUT} LABELS "ranks_${ranks};${arg_LABELS}"
      ENVIRONMENT "${rank_environment}"
      SKIP_REGULAR_EXPRESSION "no mpirun here")
  endforeach()
endfunction()
