# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts into a prefix that may be moved, mounted elsewhere or be read-only:
#   bin/finetune   share/finetune/{inputs,jobscripts,modules/templates}   share/modulefiles/finetune
#   share/doc/finetune   the documents, in the folders that they have here, so that their links hold
#   lib/finetune   libtorch, where it would stay behind in the build folder
# core::shipped (src/core/installation.hpp) finds share/finetune from where the binary is.

set(FINETUNE_INSTALL_LIBTORCH "AUTO" CACHE STRING
  "Copy libtorch's libraries into the prefix: ON, OFF, AUTO (if they lie in this source or build tree)")
set_property(CACHE FINETUNE_INSTALL_LIBTORCH PROPERTY STRINGS AUTO ON OFF)
set(FINETUNE_MODULES "" CACHE STRING
  "Modules that the installed modulefile loads first, for example openmpi/4.1.6;hdf5/1.14")
if(NOT FINETUNE_INSTALL_LIBTORCH MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FINETUNE_INSTALL_LIBTORCH is ${FINETUNE_INSTALL_LIBTORCH}. Use AUTO, ON or OFF.")
endif()

# Libraries outside both trees (MPI, HDF5, a site's libtorch) are found in the folders they were linked from.
set_target_properties(finetune PROPERTIES
  INSTALL_RPATH "$ORIGIN/../lib/finetune;${CMAKE_INSTALL_RPATH}" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS finetune RUNTIME DESTINATION bin)

# The folder from which everything that libtorch is made of is copied. A pip installation has small
# libraries that it needs beside it.
cmake_path(GET LibTorch_CPU_LIBRARY PARENT_PATH libtorch_folder)
set(carried "")
cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${libtorch_folder} NORMALIZE is_built_here)
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${libtorch_folder} NORMALIZE is_among_sources)
if(FINETUNE_INSTALL_LIBTORCH STREQUAL "ON"
    OR (FINETUNE_INSTALL_LIBTORCH STREQUAL "AUTO" AND (is_built_here OR is_among_sources)))
  cmake_path(GET libtorch_folder PARENT_PATH carried)
  if(EXISTS ${carried}/../nvidia)
    cmake_path(GET carried PARENT_PATH carried)
  endif()
endif()
if(carried)
  install(CODE "set(program \"$<TARGET_FILE:finetune>\")\nset(carried \"${carried}\")")
  install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_libraries.cmake)
endif()

# As they lie in the sources, without what only the sources can use. Their documents are in share/doc.
install(DIRECTORY inputs jobscripts DESTINATION share/finetune USE_SOURCE_PERMISSIONS
  PATTERN .gitignore EXCLUDE
  PATTERN *.md EXCLUDE
  PATTERN local.sh EXCLUDE
  PATTERN setup.sh EXCLUDE)
install(DIRECTORY modules/templates DESTINATION share/finetune/modules FILES_MATCHING PATTERN *.jinja)

# Every document and the pictures in it, but those about golden data and material of tests.
file(GLOB documents RELATIVE ${PROJECT_SOURCE_DIR}
  *.md .github/*.md inputs/*.md inputs/quickstart/*.md inputs/quickstart/*.svg inputs/recipes/*.md inputs/tasks/*.md app/*.md app/LICENSE
  jobscripts/*.md modules/*.md spack/*.md src/*.md src/*/*.md tests/*.md tests/*/*.md tests/bench/results/*.md)
foreach(document IN LISTS documents)
  cmake_path(GET document PARENT_PATH folder)
  # New ones change their folder's time; CONFIGURE_DEPENDS: see modules/templates.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder})
  install(FILES ${document} DESTINATION share/doc/finetune/${folder})
endforeach()

list(JOIN FINETUNE_MODULES " " modules_of_tcl)
list(TRANSFORM FINETUNE_MODULES REPLACE "(.+)" "\"\\1\"" OUTPUT_VARIABLE modules_of_lua)
list(JOIN modules_of_lua ", " modules_of_lua)
foreach(kind "" .lua)
  configure_file(src/cmake/modulefile${kind}.in modulefile${kind}.in @ONLY)
  # The prefix is known only when it is installed.
  install(CODE "
    set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
    configure_file(\"${PROJECT_BINARY_DIR}/modulefile${kind}.in\" \"${PROJECT_BINARY_DIR}/modulefile${kind}\")
    file(INSTALL \"${PROJECT_BINARY_DIR}/modulefile${kind}\" RENAME ${PROJECT_VERSION}${kind}
      DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/modulefiles/finetune\")")
endforeach()
