#pragma once
// SPDX-License-Identifier: Apache-2.0
// Lines for people: information on stdout (first rank only), warnings and errors on stderr.

#include <string_view>

namespace finetune::log {

/// Whether this process speaks for all. Set by comm::Environment; true without MPI.
void set_root(bool is_root);
bool is_root();

/// One line on stdout from the root; nothing elsewhere.
void info(std::string_view line);

/// One line `warning: ...` on stderr from the root; nothing elsewhere.
void warn(std::string_view line);

/// A warning that concerns the caller's rank alone, whichever it is.
void warn_of_rank(std::string_view line);

/// One line `error: ...` on stderr from whichever rank calls. Control characters are escaped.
void error(std::string_view line);

}  // namespace finetune::log
