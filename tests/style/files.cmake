# SPDX-License-Identifier: Apache-2.0
# The shape of files: licence line, #pragma once, at most 400 lines; and nothing new at the top level.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

set(top_level CMakeLists.txt README.md app src modules inputs jobscripts tests spack
  .ci .clang-format .clang-tidy .github .gitignore)
# What git holds; without git, what is there but for build folders and what editors leave.
execute_process(COMMAND git -C ${ROOT} ls-tree --name-only HEAD
  OUTPUT_VARIABLE entries ERROR_QUIET RESULT_VARIABLE status)
if(status EQUAL 0 AND EXISTS ${ROOT}/.git)
  string(REGEX REPLACE "\n" ";" entries "${entries}")
else()
  file(GLOB entries RELATIVE ${ROOT} ${ROOT}/*)
  list(FILTER entries EXCLUDE REGEX "^(build.*|[.]git|[.]gpu|[.]cache|[.]vscode|[.]idea|compile_commands[.]json)$")
endif()
foreach(entry IN LISTS entries)
  if(entry AND NOT entry IN_LIST top_level)
    problem(${entry} "the top level of the project is fixed. Put it into one of its folders")
  endif()
endforeach()

project_files(files *.hpp *.cpp *.cpp.in *.cu *.cmake CMakeLists.txt *.sh *.py)
file(GLOB_RECURSE others RELATIVE ${ROOT} ${ROOT}/jobscripts/*.sh ${ROOT}/spack/*.py)
# What an environment of Spack keeps beside itself.
list(FILTER others EXCLUDE REGEX "/[.]spack-env/")
foreach(file IN LISTS files others)
  file(STRINGS ${ROOT}/${file} head LIMIT_COUNT 3)
  if(NOT file MATCHES "CMakeLists.txt$" AND NOT "${head}" MATCHES "SPDX-License-Identifier: Apache-2.0")
    problem(${file} "has no licence line. Begin with SPDX-License-Identifier: Apache-2.0")
  endif()
  if(file MATCHES "[.]hpp$" AND NOT "${head}" MATCHES "^#pragma once")
    problem(${file} "does not begin with #pragma once")
  endif()
  file(READ ${ROOT}/${file} text)
  string(REGEX REPLACE "[^\n]" "" newlines "${text}")
  string(LENGTH "${newlines}" num_lines)
  if(num_lines GREATER 400)
    problem(${file} "has ${num_lines} lines. Split it: 400 are the most")
  endif()
endforeach()
finish("files")
