# SPDX-License-Identifier: Apache-2.0
# Finds Apache Arrow's C++ libraries for Parquet and defines finetune::parquet. Set Parquet_ROOT to the folder that holds
# include/ and lib/; in a pip installation of pyarrow that is <target>/pyarrow, where the libraries lie beside include/.

find_path(Parquet_INCLUDE_DIR parquet/arrow/reader.h PATH_SUFFIXES include)
# Packages of the Python index have no development links, only names with the version.
file(GLOB _versioned ${Parquet_INCLUDE_DIR}/../libparquet.so.*)
list(TRANSFORM _versioned REPLACE ".*/libparquet" "")
find_library(Parquet_LIBRARY NAMES parquet libparquet${_versioned}
  HINTS ${Parquet_INCLUDE_DIR}/.. PATH_SUFFIXES lib lib64)
find_library(Parquet_Arrow_LIBRARY NAMES arrow libarrow${_versioned}
  HINTS ${Parquet_INCLUDE_DIR}/.. PATH_SUFFIXES lib lib64)
if(Parquet_INCLUDE_DIR)
  file(STRINGS ${Parquet_INCLUDE_DIR}/arrow/util/config.h _line REGEX "#define ARROW_VERSION_STRING ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" Parquet_VERSION "${_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Parquet
  REQUIRED_VARS Parquet_LIBRARY Parquet_Arrow_LIBRARY Parquet_INCLUDE_DIR VERSION_VAR Parquet_VERSION)

if(Parquet_FOUND AND NOT TARGET finetune::parquet)
  add_library(finetune_parquet INTERFACE)
  add_library(finetune::parquet ALIAS finetune_parquet)
  target_include_directories(finetune_parquet SYSTEM INTERFACE ${Parquet_INCLUDE_DIR})
  target_link_libraries(finetune_parquet INTERFACE ${Parquet_LIBRARY} ${Parquet_Arrow_LIBRARY})
endif()
