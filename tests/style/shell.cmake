# SPDX-License-Identifier: Apache-2.0
# Shell scripts pass shellcheck, and pipe into nothing that stops reading before the end: what writes into the pipe is
# then killed by SIGPIPE or not, as it is fast or slow, and under pipefail that is the exit code (sed -n 1p reads on).
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

file(GLOB_RECURSE scripts RELATIVE ${ROOT} ${ROOT}/jobscripts/*.sh ${ROOT}/tests/*.sh ${ROOT}/inputs/*.sh)
if(EXISTS ${ROOT}/.ci/run)
  list(APPEND scripts .ci/run)
endif()
foreach(script IN LISTS scripts)
  file(STRINGS ${ROOT}/${script} hits REGEX "\\| *(head|grep +-[a-zA-Z]*[qm]|sed [^|]*q['\"])( |$|\\))")
  foreach(hit IN LISTS hits)
    problem(${script} "pipes into what stops reading before the end: ${hit}")
  endforeach()
endforeach()

find_program(SHELLCHECK shellcheck)
if(NOT SHELLCHECK)
  finish("shell scripts")
  message(STATUS "skipped: there is no shellcheck here")
  return()
endif()
if(scripts)
  execute_process(COMMAND ${SHELLCHECK} --external-sources --source-path=SCRIPTDIR --format=gcc ${scripts}
    WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE status OUTPUT_VARIABLE complaints ERROR_VARIABLE complaints)
  if(NOT status EQUAL 0)
    problem(shellcheck "\n${complaints}")
  endif()
endif()
finish("shell scripts")
