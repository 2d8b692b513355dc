#pragma once
// SPDX-License-Identifier: Apache-2.0
// What templates have without defining it: operators, fields and methods of values, filters, tests
// and functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.hpp"

namespace finetune::jinja::detail {

enum class Operation { add, subtract, multiply, divide, floor_divide, remainder, power };

/// + - * / // % ** of two values, as Python has it; and text + a dict that the data hold, which is
/// then the text of its JSON. Throws: Problem.
Value compute(Operation operation, const Value& a, const Value& b, Budget& budget);

/// value.name and value[key]: fields, methods and elements; undefined where there is none.
/// Throws: Problem for fields of what is undefined.
Value attribute_of(const Value& value, const std::string& name, Budget& budget);
/// Whether value.name of a dict is a method, whatever its keys are.
bool is_method_of_mapping(std::string_view name);
Value item_of(const Value& value, const Value& key, Budget& budget);
/// value[start:stop:step]; none: left out.
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
               Budget& budget);
/// A method of a string; nothing if strings have none of that name.
std::optional<Value> method_of_string(const Value& text, const std::string& name, Budget& budget);

/// What calls it, for messages; and what it is called with.
Value call(const Value& callee, const Arguments& arguments, const std::string& name);

struct Filtering;
using FilterFunction = Value (*)(const Filtering&);
/// Throws: Problem if there is no filter of that name.
FilterFunction filter_of(const std::string& name);

/// A test: of a value alone, or with another.
struct Question {
  bool (*alone)(const Value&) = nullptr;
  bool (*with)(const Value&, const Value&) = nullptr;
};
/// Nothing if there is no test of that name.
std::optional<Question> question_of(const std::string& name);
/// Throws: Problem if it asks for one more value, and there is none.
bool tested(const Question& question, const std::string& name, const Value& value,
            const Arguments& arguments);

/// A function or an object that every template knows; nothing if there is none of that name.
std::optional<Value> global(const std::string& name, std::int64_t now_s, Budget& budget);

/// Throws: Problem "x is undefined" if it is.
void require_defined(const Value& value);
/// Throws: Problem if it is no whole number. `what`: "indent: width".
std::int64_t integer_of(const Value& value, const std::string& what);

}  // namespace finetune::jinja::detail
