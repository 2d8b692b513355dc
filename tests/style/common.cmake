# SPDX-License-Identifier: Apache-2.0
# Included by the checks of this folder, which run as `cmake -DROOT=<tree> -P <check>.cmake`.
# Every check collects its problems and ends with finish().

if(NOT DEFINED ROOT)
  get_filename_component(ROOT ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
endif()
set(problems "")

# problem(where sentence): remembers one.
function(problem where sentence)
  string(APPEND problems "  ${where}: ${sentence}\n")
  set(problems "${problems}" PARENT_SCOPE)
endfunction()

# Fails with all problems; says what was checked when there is none.
function(finish what)
  if(problems)
    message(FATAL_ERROR "${what}:\n${problems}")
  endif()
  message(STATUS "${what}: fine")
endfunction()

# project_files(result pattern...): the files below the project's folders, relative to ROOT, sorted.
function(project_files result)
  set(found "")
  foreach(folder app src modules tests)
    foreach(pattern IN LISTS ARGN)
      file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/${pattern})
      list(APPEND found ${files})
    endforeach()
  endforeach()
  list(SORT found)
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# read_lines(result file): its lines as a list, without backslashes and what they escape, and without the
# brackets and semicolons that would break a CMake list.
function(read_lines result file)
  file(READ ${ROOT}/${file} text)
  string(REPLACE "\\\n" "\n" text "${text}")
  string(REGEX REPLACE "\\\\." "" text "${text}")
  string(REGEX REPLACE "[];[]" " " text "${text}")
  string(REPLACE "\n" ";" lines "${text}")
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()
