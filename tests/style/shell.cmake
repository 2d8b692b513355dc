# SPDX-License-Identifier: Apache-2.0
# Shell scripts pass shellcheck.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

find_program(SHELLCHECK shellcheck)
if(NOT SHELLCHECK)
  message(STATUS "skipped: there is no shellcheck here")
  return()
endif()
file(GLOB_RECURSE scripts RELATIVE ${ROOT} ${ROOT}/jobscripts/*.sh ${ROOT}/tests/*.sh ${ROOT}/inputs/*.sh)
if(EXISTS ${ROOT}/.ci/run)
  list(APPEND scripts .ci/run)
endif()
if(scripts)
  execute_process(COMMAND ${SHELLCHECK} --external-sources --source-path=SCRIPTDIR --format=gcc ${scripts}
    WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE status OUTPUT_VARIABLE complaints ERROR_VARIABLE complaints)
  if(NOT status EQUAL 0)
    problem(shellcheck "\n${complaints}")
  endif()
endif()
finish("shell scripts")
