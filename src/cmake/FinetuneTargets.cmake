# SPDX-License-Identifier: Apache-2.0
# What every library and every test of the project has in common.

add_library(finetune_options INTERFACE)
# A source file in a unity file counts as a header for -Wsubobject-linkage; builds of each file alone keep that warning.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(finetune_options INTERFACE -Wno-subobject-linkage)
endif()
# GCC 12 sees overlapping copies in std::string concatenations that cannot overlap (GCC bug 105651).
target_compile_options(finetune_options INTERFACE -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<BOOL:${FINETUNE_WERROR}>:-Werror>)
# GCC's warnings that follow the flow of optimised code depend on the processor it optimises for, and some are wrong with
# AVX-512: nobody's build ends because of them.
if(FINETUNE_WERROR AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(finetune_options INTERFACE
    -Wno-error=array-bounds -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow -Wno-error=stringop-overread)
endif()
if(FINETUNE_ARCH)
  target_compile_options(finetune_options INTERFACE -march=${FINETUNE_ARCH})
endif()
if(FINETUNE_SANITIZE)
  target_compile_options(finetune_options INTERFACE
    -fsanitize=${FINETUNE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(finetune_options INTERFACE -fsanitize=${FINETUNE_SANITIZE})
  if(FINETUNE_SANITIZE MATCHES "address")
    target_compile_definitions(finetune_options INTERFACE FINETUNE_ADDRESS_SANITIZER)
  endif()
endif()

# Compiling is mostly reading headers, so the heavy ones are read once. finetune_share_headers(target kind) lets a
# target take the precompiled headers of its kind; a target has one kind, the last that was said.
#   text        what files without ATen include      aten        libtorch's, too
#   test        the same with GoogleTest             aten_test   all of them; both of these for -O0
set(FINETUNE_HEADERS_text <fmt/format.h> <nlohmann/json.hpp> <algorithm> <array> <cmath> <cstdint> <filesystem>
  <functional> <map> <memory> <optional> <span> <sstream> <string> <string_view> <utility> <vector>)
set(FINETUNE_HEADERS_aten <ATen/ATen.h> ${FINETUNE_HEADERS_text})
set(FINETUNE_HEADERS_test <gtest/gtest.h> ${FINETUNE_HEADERS_text} <fstream> <set> <thread>)
set(FINETUNE_HEADERS_aten_test <gtest/gtest.h> ${FINETUNE_HEADERS_aten} <fstream> <set>)

function(finetune_share_headers target kind)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  set(headers finetune_headers_${kind})
  if(NOT TARGET ${headers})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers/${kind}.cpp CONTENT "")
    add_library(${headers} OBJECT ${CMAKE_BINARY_DIR}/headers/${kind}.cpp)
    target_link_libraries(${headers} PRIVATE finetune_options nlohmann_json::nlohmann_json fmt::fmt)
    if(kind MATCHES "aten")
      target_link_libraries(${headers} PRIVATE finetune::torch)
    endif()
    if(kind MATCHES "test")
      target_link_libraries(${headers} PRIVATE GTest::gtest)
      target_compile_options(${headers} PRIVATE -O0)
    endif()
    target_precompile_headers(${headers} PRIVATE ${FINETUNE_HEADERS_${kind}})
  endif()
  # With the definitions that the headers were read with.
  target_link_libraries(${target} PRIVATE nlohmann_json::nlohmann_json fmt::fmt)
  set_target_properties(${target} PROPERTIES PRECOMPILE_HEADERS_REUSE_FROM ${headers})
endfunction()

# finetune_library(core PUBLIC ... PRIVATE ...): completes the library target finetune_<name> under
# the alias finetune::<name>, with src/ as include root.
function(finetune_library name)
  add_library(finetune::${name} ALIAS finetune_${name})
  target_include_directories(finetune_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(finetune_${name} ${ARGN} PRIVATE finetune_options)
  # Those that link libtorch compile with OpenMP, for which these headers were not read.
  if(NOT "finetune::torch" IN_LIST ARGN)
    finetune_share_headers(finetune_${name} text)
  endif()
endfunction()

# finetune_use_aten(target): links libtorch, and shares its heavy headers.
function(finetune_use_aten target)
  target_link_libraries(${target} PRIVATE finetune_options finetune::torch)
  finetune_share_headers(${target} aten)
endfunction()

# finetune_label_tests(kind): every test of this folder that has no kind yet gets this one, called last in a folder.
#   quick   seconds, one process           ranks   one program on 1 to 4 ranks
#   slow    the program itself, started over and over, on several ranks
#   soak    long, or rarely finds anything: tests/run.sh leaves it to tests/run.sh --all
function(finetune_label_tests kind)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} LABELS labels)
    if(NOT labels MATCHES "(^|;)(quick|ranks|slow|soak)(;|$)")
      set_property(TEST ${test} APPEND PROPERTY LABELS ${kind})
    endif()
  endforeach()
endfunction()

# finetune_skip_test(name reason): in the place of a test whose program cannot be built here, so that ctest names it
# among those that were skipped, and why. Builds with sanitizers leave that to the one without.
function(finetune_skip_test name reason)
  if(NOT FINETUNE_SANITIZE)
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${reason}")
    set_tests_properties(${name} PROPERTIES LABELS quick SKIP_REGULAR_EXPRESSION "skipped:")
  endif()
endfunction()

# finetune_add_test(unit/core SOURCES a.cpp ... LIBRARIES finetune::core ... [RANKS 1 2 4] [SOAK_RANKS 3]
#                   [ATEN] [TIMEOUT s] [LABELS ...])
# Without RANKS: a plain GoogleTest program, one ctest. With RANKS: linked with the MPI main, one ctest that starts the
# program once, on as many ranks as the largest number, and runs the suite on that many of them for each number. Numbers
# beyond four have a ctest of their own, unit/core.r8; ranks beyond the cores run oversubscribed. TIMEOUT is of each
# number. SOAK_RANKS: those that only `tests/run.sh --all` runs, as unit/core/soak.
# Its kind (see above) is quick or ranks unless LABELS names another or FINETUNE_TEST_KIND is set.
# With FINETUNE_SANITIZE: named sanitized/unit/core... (threads/unit/comm... with the thread sanitizer),
# on two ranks at most, and built by the target sanitized_tests.
function(finetune_add_test name)
  cmake_parse_arguments(arg "ATEN" "TIMEOUT" "SOURCES;LIBRARIES;RANKS;SOAK_RANKS;LABELS" ${ARGN})
  if(FINETUNE_SANITIZE AND arg_ATEN AND NOT FINETUNE_SANITIZE_ATEN)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set(kind quick)
  if(arg_RANKS OR arg_SOAK_RANKS)
    set(kind ranks)
  endif()
  if(FINETUNE_TEST_KIND)
    list(APPEND arg_LABELS ${FINETUNE_TEST_KIND})
  elseif(NOT arg_LABELS MATCHES "slow|soak")
    list(APPEND arg_LABELS ${kind})
  endif()
  # The long ones begin first, so that none runs alone at the end.
  set(cost 0)
  if(FINETUNE_TEST_KIND STREQUAL slow OR arg_LABELS MATCHES "slow")
    set(cost 50)
  endif()
  string(REPLACE "/" "_" target test_${name})
  add_executable(${target} ${arg_SOURCES})
  if(FINETUNE_SANITIZE)
    add_dependencies(sanitized_tests ${target})
    if(FINETUNE_SANITIZE STREQUAL thread)
      string(PREPEND name "threads/")
    else()
      string(PREPEND name "sanitized/")
    endif()
    list(APPEND arg_LABELS sanitized)
    list(APPEND arg_RANKS ${arg_SOAK_RANKS})
    set(arg_SOAK_RANKS "")
    list(FILTER arg_RANKS EXCLUDE REGEX "^([3-9]|[0-9][0-9]+)$")
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
    # Every allocation is remembered by frame pointers, which cost a fifth of unwinding by tables. libtorch is
    # not instrumented, so the bounds of containers it shares with us are not marked.
    set(environment
      "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0"
      "ASAN_OPTIONS=detect_container_overflow=0"
      "UBSAN_OPTIONS=print_stacktrace=1"
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp:print_suppressions=0:ignore_noninstrumented_modules=1")
  endif()
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} test_messages test_golden_models test_folders finetune_options)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # What is tested is optimised; the tests themselves need to compile fast.
  target_compile_options(${target} PRIVATE -O0)
  if(arg_ATEN)
    target_link_libraries(${target} PRIVATE finetune::torch)
    finetune_share_headers(${target} aten_test)
  else()
    finetune_share_headers(${target} test)
  endif()
  if(NOT arg_RANKS AND NOT arg_SOAK_RANKS)
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" COST ${cost} ENVIRONMENT "${environment}")
    return()
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
  target_link_libraries(${target} PRIVATE finetune::comm GTest::gtest)
  # What Open MPI holds when a rank ends depends on when the last messages of the others came, so its
  # leaks come and go with the load; and the leak sanitizer stops a process by ptrace, which fails now
  # and then under mpirun. Leaks are looked for in the tests without ranks.
  list(TRANSFORM environment REPLACE "^(ASAN_OPTIONS=.*)$" "\\1:detect_leaks=0")
  foreach(ranks IN LISTS arg_RANKS)
    if(ranks GREATER 4)
      list(REMOVE_ITEM arg_RANKS ${ranks})
      finetune_add_launch(${name}.r${ranks} ${target} "${ranks}" ${arg_TIMEOUT} "${arg_LABELS}" ${cost} "${environment}")
    endif()
  endforeach()
  finetune_add_launch(${name} ${target} "${arg_RANKS}" ${arg_TIMEOUT} "${arg_LABELS}" ${cost} "${environment}")
  list(REMOVE_ITEM arg_LABELS quick ranks slow)
  finetune_add_launch(${name}/soak ${target} "${arg_SOAK_RANKS}" ${arg_TIMEOUT} "${arg_LABELS};soak" ${cost} "${environment}")
endfunction()

# One launch of a program of finetune_add_test on several numbers of ranks, see tests/support/mpi_main.cpp.
function(finetune_add_launch name target numbers timeout labels cost environment)
  if(NOT numbers)
    return()
  endif()
  list(SORT numbers COMPARE NATURAL)
  list(GET numbers -1 most)
  list(LENGTH numbers count)
  list(TRANSFORM numbers PREPEND ranks_ OUTPUT_VARIABLE rank_labels)
  list(JOIN numbers "," numbers)
  # Ranks wait for each other thousands of times: where another test has their core, each time is a time slice.
  set(processors ${most})
  if(most GREATER 1)
    math(EXPR processors "${most} + 1")
  endif()
  math(EXPR total "${count} * ${timeout} + 60")
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/support/mpirun.sh ${most} $<TARGET_FILE:${target}>
    --name=${name} --ranks=${numbers} --limit=${timeout})
  set_tests_properties(${name} PROPERTIES
    PROCESSORS ${processors} TIMEOUT ${total} LABELS "${rank_labels};${labels}" COST ${cost}
    ENVIRONMENT "${environment}" SKIP_REGULAR_EXPRESSION "no mpirun here")
endfunction()
