#pragma once
// SPDX-License-Identifier: Apache-2.0
// What stands behind the colon of a place of a format, as ">8" or "05.1f".

#include <string_view>

#include "jinja/value.hpp"

namespace finetune::jinja::detail {

/// `value` as `format` lays it out: fill, alignment, sign, #, 0, width, grouping and precision, of
/// strings (s), of whole numbers (d x X o b) and of floats (e E f F g G %). Throws: Problem for
/// other values, and for Python's other formats: c, n, z, # of a float, and separators between
/// zeros that fill.
Text laid_out(const Value& value, std::string_view format, Budget& budget);

}  // namespace finetune::jinja::detail
