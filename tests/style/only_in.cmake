# SPDX-License-Identifier: Apache-2.0
# One owner for each dangerous library: nobody else calls HDF5, MPI, NCCL, CUDA, LAPACK or the TOML parser. Comments and
# strings may name them.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

# only_in(pattern owner what): `pattern`, not preceded by a letter, is found only in files matching `owner`.
macro(only_in pattern owner what)
  list(APPEND patterns "(^|[^A-Za-z0-9_])${pattern}")
  list(APPEND owners "${owner}")
  list(APPEND whats "${what}")
endmacro()
only_in("H5[A-Z]+[A-Za-z0-9_]* *[(]" "^src/hdf5/" "HDF5 is called only by src/hdf5")
only_in("MPI_[A-Z]" "^(src/comm|tests/fake_cuda|tests/support|tests/unit/comm)/" "MPI is called only by src/comm")
only_in("nccl[A-Z]" "^(src/comm|tests/fake_cuda|tests/unit/comm)/" "NCCL is called only by src/comm")
only_in("cuda[A-Z][A-Za-z]+ *[(]" "^(src/comm|src/kernels|tests)/" "CUDA's runtime is called only by src/comm and src/kernels")
only_in("include *<yaml-cpp" "^src/yaml/" "YAML is read only by src/yaml")
only_in("include *<openssl" "^src/core/" "OpenSSL is called only by src/core")
# Factorisations have other bits on other threads: who wants one calls src/model/factors. Norms and dots (linalg_vec...) are
# none. That of the delta rule solves within a training step, on a GPU.
only_in("(at::|[.])?linalg_([a-uw-z]|v[^e])[a-z_]* *[(]" "^(src/model/factors[.]cpp|src/kernels/composed_delta_rule[.]cpp|tests/)" "LAPACK is called only by src/model/factors")
only_in("at::(svd|qr|geqrf|orgqr|ormqr|cholesky[a-z_]*|triangular_solve|lu_[a-z]+|inverse|pinverse|det|logdet|slogdet|matrix_exp) *[(]" "^src/model/factors[.]cpp" "LAPACK is called only by src/model/factors")
only_in("at::set_num_threads *[(]" "^(app/launch[.]cpp|src/kernels/one_thread[.]cpp|tests/)" "threads are set only by app/launch and by OneThread of src/kernels")
only_in("include *<toml" "^src/deck/" "TOML is read only by src/deck")

project_files(files *.hpp *.cpp *.cu)
foreach(file IN LISTS files)
  read_lines(lines ${file})
  set(number 0)
  foreach(line IN LISTS lines)
    math(EXPR number "${number} + 1")
    string(REGEX REPLACE "\"[^\"]*\"" "" code "${line}")
    string(REGEX REPLACE "//.*" "" code "${code}")
    foreach(pattern owner what IN ZIP_LISTS patterns owners whats)
      if("${code}" MATCHES "${pattern}" AND NOT file MATCHES "${owner}")
        problem(${file}:${number} "${what}")
      endif()
    endforeach()
  endforeach()
endforeach()
finish("owners of libraries")
