# SPDX-License-Identifier: Apache-2.0
# The faults of tests/planted can still be planted: the text that each changes is there, once. Whoever changes it says
# what the fault is now.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

find_program(PYTHON python3)
if(NOT PYTHON)
  message(STATUS "skipped: there is no python3 here")
  return()
endif()
execute_process(COMMAND ${PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/../planted/faults.py check ${ROOT} ${ROOT}/tests/planted
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE complaints)
if(NOT status EQUAL 0)
  problem(tests/planted "\n${complaints}${output}")
endif()
finish("planted faults")
