# SPDX-License-Identifier: Apache-2.0
# All C++ is laid out as clang-format 14 does it with the project's .clang-format.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

find_program(CLANG_FORMAT NAMES clang-format-14 clang-format)
if(NOT CLANG_FORMAT)
  message(STATUS "skipped: there is no clang-format here")
  return()
endif()
execute_process(COMMAND ${CLANG_FORMAT} --version OUTPUT_VARIABLE version)
if(NOT version MATCHES "version 14[.]")
  message(STATUS "skipped: needs clang-format 14, other versions lay out differently: ${version}")
  return()
endif()

project_files(files *.hpp *.cpp *.cu)
execute_process(COMMAND ${CLANG_FORMAT} --dry-run -Werror --style=file ${files}
  WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE status ERROR_VARIABLE complaints)
if(NOT status EQUAL 0)
  string(REGEX MATCHALL "[^\n]*: error: [^\n]*" lines "${complaints}")
  foreach(line IN LISTS lines)
    problem("${line}" "run clang-format -i on it")
  endforeach()
  problem(clang-format "ended with status ${status}")
endif()
finish("layout of the code")
