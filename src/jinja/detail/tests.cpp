// SPDX-License-Identifier: Apache-2.0
// What "is" asks.
#include <fmt/format.h>

#include <unordered_map>

#include "jinja/detail/letters.hpp"
#include "jinja/detail/library.hpp"

namespace finetune::jinja::detail {
namespace {

/// What is left of `value` divided by `by`.
double rest_of(const Value& value, const Value& by) {
  for (const Value* number : {&value, &by}) {
    require_defined(*number);
    if (!number->is_number())
      throw Problem(
          fmt::format("divisibility is asked of numbers, not of {}", number->type_name()));
  }
  Budget enough(1, 1);
  return compute(Operation::remainder, value, by, enough).number();
}

bool is_divisible(const Value& value, const Value& by) {
  return rest_of(value, by) == 0;
}

template <bool wanted(int)>
bool is_ordered(const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  return wanted(compare(a, b));
}

bool is_less(int order) {
  return order < 0;
}
bool is_at_most(int order) {
  return order <= 0;
}
bool is_greater(int order) {
  return order > 0;
}
bool is_at_least(int order) {
  return order >= 0;
}

bool is_container(const Value& v) {
  return v.is_string() || v.is_sequence() || (v.is_mapping() && !v.mapping().is_namespace) ||
         v.is_undefined();
}

/// Those that ask of the value alone.
const std::unordered_map<std::string, bool (*)(const Value&)>& questions() {
  static const std::unordered_map<std::string, bool (*)(const Value&)> all = {
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"true", [](const Value& v) { return v.is_bool() && v.is_true(); }},
      {"false", [](const Value& v) { return v.is_bool() && !v.is_true(); }},
      {"integer",
       [](const Value& v) { return (v.is_integer() && !v.is_bool()) || v.is_long_integer(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"number", [](const Value& v) { return v.is_number() || v.is_long_integer(); }},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"mapping", [](const Value& v) { return v.is_mapping() && !v.mapping().is_namespace; }},
      {"iterable", [](const Value& v) { return v.require_usable(), is_container(v); }},
      // Python asks for a length, which something undefined has where it is an empty text.
      {"sequence", [](const Value& v) { return is_container(v) && !v.is_strictly_undefined(); }},
      {"callable", [](const Value& v) { return v.is_callable() || v.is_undefined(); }},
      {"lower",
       [](const Value& v) {
         const std::string text = to_text(v);
         return lower(text) == text && upper(text) != text;
       }},
      {"upper",
       [](const Value& v) {
         const std::string text = to_text(v);
         return upper(text) == text && lower(text) != text;
       }},
      {"even", [](const Value& v) { return is_divisible(v, 2); }},
      {"odd", [](const Value& v) { return rest_of(v, 2) == 1; }},
  };
  return all;
}

/// Those that compare it.
const std::unordered_map<std::string, bool (*)(const Value&, const Value&)>& comparisons() {
  static const auto is_equal = [](const Value& a, const Value& b) { return a == b; };
  static const auto is_other = [](const Value& a, const Value& b) { return !(a == b); };
  static const std::unordered_map<std::string, bool (*)(const Value&, const Value&)> all = {
      {"eq", is_equal},
      {"equalto", is_equal},
      {"==", is_equal},
      {"ne", is_other},
      {"!=", is_other},
      {"lt", is_ordered<is_less>},
      {"lessthan", is_ordered<is_less>},
      {"<", is_ordered<is_less>},
      {"le", is_ordered<is_at_most>},
      {"<=", is_ordered<is_at_most>},
      {"gt", is_ordered<is_greater>},
      {"greaterthan", is_ordered<is_greater>},
      {">", is_ordered<is_greater>},
      {"ge", is_ordered<is_at_least>},
      {">=", is_ordered<is_at_least>},
      {"in", [](const Value& a, const Value& b) { return contains(b, a); }},
      {"sameas", [](const Value& a, const Value& b) { return a.is_same(b); }},
      {"divisibleby", is_divisible},
  };
  return all;
}

}  // namespace

std::optional<Question> question_of(const std::string& name) {
  if (const auto found = questions().find(name); found != questions().end())
    return Question{.alone = found->second};
  if (const auto found = comparisons().find(name); found != comparisons().end())
    return Question{.with = found->second};
  return std::nullopt;
}

bool tested(const Question& question, const std::string& name, const Value& value,
            const Arguments& arguments) {
  if (question.alone != nullptr) return question.alone(value.listed());
  if (arguments.positional.size() != 1)
    throw Problem(fmt::format("the test \"{}\" asks for one value", name));
  return question.with(value, arguments.positional[0]);
}

}  // namespace finetune::jinja::detail
