# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone: one source file per header, which includes it twice and nothing else. A header that a
# source file of its own includes before anything else is seen to compile there. Both hold only where nothing is read
# before the header, so this asks for a build without precompiled headers and without unity files.
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS OR CMAKE_UNITY_BUILD)
  message(FATAL_ERROR "FINETUNE_CHECK_HEADERS needs CMAKE_DISABLE_PRECOMPILE_HEADERS=ON and CMAKE_UNITY_BUILD=OFF.")
endif()
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/src/*.hpp ${PROJECT_SOURCE_DIR}/modules/*.hpp ${PROJECT_SOURCE_DIR}/app/*.hpp)
if(NOT FINETUNE_WITH_CUDA)
  # Private to the CUDA sources, which are not built.
  list(FILTER headers EXCLUDE REGEX "^src/comm/cuda[.]hpp$")
endif()

# Appends the source files below a folder of this build to compiled.
function(collect_sources folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(files ${target} SOURCES)
    foreach(file IN LISTS files)
      get_filename_component(file "${file}" ABSOLUTE BASE_DIR ${folder})
      list(APPEND compiled ${file})
    endforeach()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    collect_sources(${below})
  endforeach()
  set(compiled ${compiled} PARENT_SCOPE)
endfunction()
set(compiled "")
foreach(folder src modules app)
  collect_sources(${PROJECT_SOURCE_DIR}/${folder})
endforeach()

# Whether the header's own source file shows that it compiles alone.
function(is_shown result header)
  set(${result} OFF PARENT_SCOPE)
  string(REGEX REPLACE "[.]hpp$" ".cpp" own ${PROJECT_SOURCE_DIR}/${header})
  if(NOT own IN_LIST compiled)
    return()
  endif()
  file(STRINGS ${own} first REGEX "^#include" LIMIT_COUNT 1)
  string(REGEX REPLACE "^(src|modules|app)/" "" name ${header})
  if(first STREQUAL "#include \"${name}\"")
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

set(sources "")
foreach(header IN LISTS headers)
  is_shown(shown ${header})
  if(NOT shown)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${header}.cpp)
    file(CONFIGURE OUTPUT ${source}
      CONTENT "#include \"${PROJECT_SOURCE_DIR}/${header}\"\n#include \"${PROJECT_SOURCE_DIR}/${header}\"\n")
    list(APPEND sources ${source})
  endif()
endforeach()

add_library(style_headers OBJECT ${sources})
target_include_directories(style_headers PRIVATE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/modules ${PROJECT_SOURCE_DIR}/app ${PROJECT_SOURCE_DIR})
# Trilinos' Kokkos has only the variable, a Kokkos of its own only the target.
target_include_directories(style_headers SYSTEM PRIVATE ${HDF5_C_INCLUDE_DIRS} ${Kokkos_INCLUDE_DIRS})
target_link_libraries(style_headers PRIVATE finetune_options finetune::torch
  $<$<NOT:$<BOOL:${Kokkos_INCLUDE_DIRS}>>:Kokkos::kokkos>
  CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json MPI::MPI_CXX toml11::toml11
  PkgConfig::crypto PkgConfig::isal PkgConfig::xxhash PkgConfig::pcre2 PkgConfig::utf8proc PkgConfig::yaml_cpp)
target_compile_options(style_headers PRIVATE -O0)
