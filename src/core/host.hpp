#pragma once
// SPDX-License-Identifier: Apache-2.0
// The computer this process runs on.

#include <string>

namespace finetune::core {

/// Its name, cut after 255 bytes.
std::string host_name();

/// Lets this process have as many files open as its hard limit says, which is often far more than
/// the usual 1024: archives and Parquet files of a data set stay open.
void raise_file_limit();

/// Lets a write beyond the limit on the size of files (ulimit -f) fail with EFBIG, which is
/// reported as other failures are, instead of ending the process by SIGXFSZ.
void survive_file_size_limit();

}  // namespace finetune::core
