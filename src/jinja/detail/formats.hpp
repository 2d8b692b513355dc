#pragma once
// SPDX-License-Identifier: Apache-2.0
// Texts with places that are written {0.name[key]!r:>8}, as Python's str.format fills them.

#include "jinja/value.hpp"

namespace finetune::jinja::detail {

/// `format` with its places filled. Fields of values are those that templates reach; of
/// conversions, !r and !s are known. Throws: Problem; see also laid_out.
Text filled(const Text& format, const Arguments& arguments, Budget& budget);

}  // namespace finetune::jinja::detail
