#pragma once
// SPDX-License-Identifier: Apache-2.0
// What templates have without defining it: operators, fields and methods of values, filters, tests
// and functions.

#include <cstdint>
#include <optional>
#include <string>

#include "jinja/value.hpp"

namespace finetune::jinja::detail {

/// + - * / // % ** of two values, as Python has it. Throws: Problem.
Value compute(const std::string& sign, const Value& a, const Value& b, Budget& budget);

/// value.name and value[key]: fields, methods and elements; undefined where there is none.
/// Throws: Problem for fields of what is undefined.
Value attribute_of(const Value& value, const std::string& name, Budget& budget);
Value item_of(const Value& value, const Value& key, Budget& budget);
/// value[start:stop:step]; none: left out.
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
               Budget& budget);
/// A method of a string; nothing if strings have none of that name.
std::optional<Value> method_of_string(const Value& text, const std::string& name, Budget& budget);

/// What calls it, for messages; and what it is called with.
Value call(const Value& callee, const Arguments& arguments, const std::string& name);

/// Throws: Problem for filters and tests that there are not.
Value filtered(const std::string& name, const Value& value, const Arguments& arguments,
               Budget& budget);
bool is_test(const std::string& name);
bool tested(const std::string& name, const Value& value, const Arguments& arguments);
void require_filter(const std::string& name);

/// A function or an object that every template knows; nothing if there is none of that name.
std::optional<Value> global(const std::string& name, std::int64_t now_s, Budget& budget);

/// Throws: Problem "x is undefined" if it is.
void require_defined(const Value& value);
/// Throws: Problem if it is no whole number. `what`: "indent: width".
std::int64_t integer_of(const Value& value, const std::string& what);

}  // namespace finetune::jinja::detail
