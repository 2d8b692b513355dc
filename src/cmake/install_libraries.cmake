# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: copies the shared libraries that ${program} loads from below ${carried} into
# lib/finetune of the prefix, where they find each other.
string(REGEX REPLACE "([][+.*()^$?|\\])" "\\\\\\1" pattern "${carried}")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program}
  RESOLVED_DEPENDENCIES_VAR libraries
  UNRESOLVED_DEPENDENCIES_VAR missing
  # Two copies of a library of one name, one of them the system's, are no conflict: the prefix's is loaded.
  CONFLICTING_DEPENDENCIES_PREFIX twice
  POST_INCLUDE_REGEXES "^${pattern}/"
  POST_EXCLUDE_REGEXES ".*")
foreach(name IN LISTS twice_FILENAMES)
  list(APPEND libraries ${twice_${name}})
endforeach()
foreach(library IN LISTS libraries)
  cmake_path(GET library PARENT_PATH folder)
  # Opened by name when a kernel is compiled at run time.
  file(GLOB opened ${folder}/libcaffe2_nvrtc.so)
  if(library MATCHES "/libtorch_cuda[.]so$")
    list(APPEND libraries ${opened})
  endif()
endforeach()
list(FILTER libraries INCLUDE REGEX "^${pattern}/")
list(REMOVE_DUPLICATES libraries)
file(INSTALL ${libraries} DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/finetune"
  TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN)
