// SPDX-License-Identifier: Apache-2.0
// What every template knows by name.
#include <fmt/format.h>

#include <ctime>

#include "jinja/detail/library.hpp"
#include "jinja/template.hpp"

namespace finetune::jinja::detail {
namespace {

Value range(const Arguments& arguments, Budget& budget) {
  arguments.require("range", 3);
  if (arguments.positional.empty()) throw Problem("range asks for an end");
  const auto at = [&](std::size_t i) { return integer_of(arguments.positional[i], "range"); };
  const bool has_begin = arguments.positional.size() > 1;
  const std::int64_t begin = has_begin ? at(0) : 0, end = has_begin ? at(1) : at(0);
  const std::int64_t step = arguments.positional.size() > 2 ? at(2) : 1;
  if (step == 0) throw Problem("range's step is not 0");
  // As Jinja's sandbox has it.
  constexpr std::int64_t longest = 100'000;
  const double length =
      (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
  if (length > longest) throw Problem(fmt::format("range is of more than {} numbers", longest));
  std::vector<Value> numbers;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step)
    numbers.emplace_back(i);
  budget.spend(static_cast<std::int64_t>(numbers.size()));
  return numbers;
}

Mapping mapping_of(const Arguments& arguments, const char* of) {
  Mapping mapping;
  arguments.require(of, 1, {});
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional.front();
    if (!first.is_mapping()) throw Problem(fmt::format("{} asks for a dict", of));
    mapping.items = first.mapping().items;
    mapping.element = first.mapping().element;
  }
  return mapping;
}

Value dict(const Arguments& arguments, bool is_namespace) {
  Mapping mapping = mapping_of({arguments.positional, {}}, is_namespace ? "namespace" : "dict");
  for (const auto& [name, value] : arguments.named)
    mapping.set(name, value);
  mapping.is_namespace = is_namespace;
  return mapping;
}

[[noreturn]] Value raise(const Arguments& arguments) {
  throw Refusal(arguments.positional.empty() ? "the template refuses it"
                                             : to_text(arguments.positional.front()));
}

Value now_as(const Arguments& arguments, std::int64_t now_s) {
  if (arguments.positional.empty()) throw Problem("strftime_now asks for a format");
  const std::time_t now = now_s;
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[512];
  const std::string format = to_text(arguments.positional.front());
  return std::string(text, std::strftime(text, sizeof text, format.c_str(), &local));
}

/// The next of its values whenever it is asked, from the first again behind the last.
Value cycler(const Arguments& arguments) {
  if (arguments.positional.empty()) throw Problem("cycler has no values");
  const auto at = std::make_shared<std::size_t>(0);
  const std::vector<Value> values = arguments.positional;
  const auto no_call = [](const Arguments&) -> Value { throw Problem("a cycler has .next()"); };
  return Callable{"cycler", no_call, [at, values](const std::string& name) -> std::optional<Value> {
                    if (name == "current") return values[*at];
                    if (name == "reset")
                      return Callable{"cycler.reset", [at](const Arguments&) -> Value {
                                        *at = 0;
                                        return {};
                                      }};
                    if (name != "next") return std::nullopt;
                    return Callable{"cycler.next", [at, values](const Arguments&) -> Value {
                                      const Value now = values[*at];
                                      *at = (*at + 1) % values.size();
                                      return now;
                                    }};
                  }};
}

/// Nothing at the first call, then always the same.
Value joiner(const Arguments& arguments) {
  const auto is_first = std::make_shared<bool>(true);
  const Value between = arguments.get(0, "sep", ", ");
  return Callable{"joiner", [is_first, between](const Arguments&) -> Value {
                    if (!std::exchange(*is_first, false)) return between;
                    return "";
                  }};
}

}  // namespace

std::optional<Value> global(const std::string& name, std::int64_t now_s, Budget& budget) {
  if (name == "range")
    return Callable{name, [&budget](const Arguments& a) { return range(a, budget); }};
  if (name == "namespace") return Callable{name, [](const Arguments& a) { return dict(a, true); }};
  if (name == "dict") return Callable{name, [](const Arguments& a) { return dict(a, false); }};
  if (name == "raise_exception")
    return Callable{name, [](const Arguments& a) -> Value { raise(a); }};
  if (name == "strftime_now")
    return Callable{name, [now_s](const Arguments& a) { return now_as(a, now_s); }};
  if (name == "cycler") return Callable{name, cycler};
  if (name == "joiner") return Callable{name, joiner};
  return std::nullopt;
}

}  // namespace finetune::jinja::detail
