#pragma once
// SPDX-License-Identifier: Apache-2.0
// JSON that is written again: objects keep the order of their fields, whole numbers their digits.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/json.hpp"

namespace finetune::core {

using OrderedJson = nlohmann::ordered_json;

/// As parse_json (core/json.hpp). A whole number that no 64 bits hold, which the library would
/// round to a double, keeps its digits as Python's json does: see exact_digits.
OrderedJson ordered_json(std::string_view text, const std::string& where = "",
                         std::int64_t first_line = 1, std::int64_t most_values = 1'000'000);

/// The digits of a whole number outside of the 64 bits of any integer type ("-" in front if it is
/// negative), or nothing for every other value. Such a number is a value of type `binary` with the
/// subtype 1: `dump()` does not write it as a number, data::dump_json does.
std::optional<std::string_view> exact_digits(const OrderedJson& value);

/// As `type_name()` of the library, "number" for such digits, too. For messages.
const char* type_name(const OrderedJson& value);

/// `value` for readers that know no digits: such numbers are rounded to doubles, and objects lose
/// their order.
Json plain_json(const OrderedJson& value);

/// A value that exact_digits returns `digits` of.
OrderedJson from_digits(std::string_view digits);

}  // namespace finetune::core
