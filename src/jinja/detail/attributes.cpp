// SPDX-License-Identifier: Apache-2.0
// Fields, elements and methods of values. Methods that change lists or dicts are refused, as
// transformers' sandbox refuses them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/library.hpp"

namespace finetune::jinja::detail {
namespace {

template <typename F>
Value method(const std::string& name, F f) {
  return Callable{name, std::move(f)};
}

Value pairs_of(const Mapping& mapping) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : mapping.items)
    pairs.push_back(Value::tuple({key, value}));
  return pairs;
}

Value values_of(const Mapping& mapping) {
  std::vector<Value> values;
  for (const auto& [key, value] : mapping.items)
    values.push_back(value);
  return values;
}

void refuse_changes(const std::string& name, std::initializer_list<std::string_view> changing,
                    const char* of) {
  if (std::ranges::find(changing, name) != changing.end())
    throw Problem(fmt::format("{}.{} would change it, which templates may not", of, name));
}

std::optional<Value> method_of_mapping(const Value& whole, const std::string& name) {
  // A text may be a dict, too.
  const Value value = whole.is_mapping() ? whole : Value(*whole.mapping_or_null());
  refuse_changes(name, {"clear", "pop", "popitem", "setdefault", "update"}, "dict");
  const auto none = [name](const Arguments& arguments) { arguments.require("dict." + name, 0); };
  if (name == "items")
    return method(name, [=](const Arguments& a) { return none(a), pairs_of(value.mapping()); });
  if (name == "values")
    return method(name, [=](const Arguments& a) { return none(a), values_of(value.mapping()); });
  if (name == "keys")
    return method(name,
                  [=](const Arguments& a) -> Value { return none(a), Value(elements_of(value)); });
  if (name == "copy") return method(name, [=](const Arguments& a) { return none(a), value; });
  if (name == "get")
    return method(name, [=](const Arguments& a) -> Value {
      a.require("dict.get", 2);
      if (a.positional.empty()) throw Problem("dict.get asks for a key");
      const Value* found = value.mapping().find(a.positional[0]);
      return found != nullptr ? *found : a.get(1, "default", Value());
    });
  return std::nullopt;
}

std::optional<Value> method_of_sequence(const Value& value, const std::string& name) {
  refuse_changes(name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"},
                 "list");
  if (name == "copy") return method(name, [=](const Arguments&) { return value; });
  if (name != "index" && name != "count") return std::nullopt;
  return method(name, [=](const Arguments& a) -> Value {
    a.require("list." + name, 1);
    if (a.positional.empty()) throw Problem("list." + name + " asks for a value");
    const auto& items = value.sequence().items;
    if (name == "count") return std::int64_t{std::ranges::count(items, a.positional[0])};
    const auto found = std::ranges::find(items, a.positional[0]);
    if (found == items.end()) throw Problem("list.index: it is not in the list");
    return std::int64_t{found - items.begin()};
  });
}

std::optional<Value> member_of(const Value& value, const std::string& name, Budget& budget) {
  if (value.is_callable())
    return value.callable().field ? value.callable().field(name) : std::nullopt;
  if (value.is_string()) {
    const bool is_of_lists = name == "copy" || name == "count" || name == "index";
    if (is_of_lists && value.listed().is_sequence())
      return method_of_sequence(value.listed(), name);
    auto method = method_of_string(value, name, budget);
    if (!method && value.mapping_or_null() != nullptr) method = method_of_mapping(value, name);
    return method;
  }
  if (value.is_sequence()) return method_of_sequence(value, name);
  if (!value.is_mapping()) return std::nullopt;
  if (!value.mapping().is_namespace) return method_of_mapping(value, name);
  const Value* found = value.mapping().named(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

/// By key or place; nothing if there is none.
std::optional<Value> element_of(const Value& value, const Value& key) {
  const Mapping* mapping = value.mapping_or_null();
  if (mapping != nullptr && !mapping->is_namespace && (value.is_mapping() || key.is_string())) {
    const Value* found = mapping->find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (!key.is_integer() || !(value.is_sequence() || value.is_string())) return std::nullopt;
  const auto at = [&](const auto& items) -> std::optional<Value> {
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t i = key.integer() < 0 ? key.integer() + size : key.integer();
    if (i < 0 || i >= size) return std::nullopt;
    return Value(items[static_cast<std::size_t>(i)]);
  };
  if (value.is_sequence()) return at(value.sequence().items);
  if (const Value* structure = value.structure_or_null()) return element_of(*structure, key);
  const auto characters = characters_of(value.string());
  const auto character = at(characters);
  if (!character) return std::nullopt;
  const std::int64_t i = key.integer() < 0 ? key.integer() + std::ssize(characters) : key.integer();
  return Value(value.text().part(characters[static_cast<std::size_t>(i)]));
}

Value missing(const Value& value, const std::string& what, const Budget& budget) {
  return budget.undefined(what, value.type_name());
}

/// Where a slice begins or ends, from its end if negative, within bounds.
std::int64_t bound(const Value& place, std::int64_t size, std::int64_t step,
                   std::int64_t fallback) {
  if (place.is_none()) return fallback;
  std::int64_t i = integer_of(place, "an end of a slice");
  if (i < 0) i += size;
  const std::int64_t least = step < 0 ? -1 : 0;
  return std::clamp(i, least, step < 0 ? size - 1 : size);
}

}  // namespace

bool is_method_of_mapping(std::string_view name) {
  constexpr std::array<std::string_view, 10> methods = {
      "clear", "pop", "popitem", "setdefault", "update", "items", "values", "keys", "copy", "get"};
  return std::ranges::find(methods, name) != methods.end();
}

Value attribute_of(const Value& value, const std::string& name, Budget& budget) {
  require_defined(value);
  if (name.starts_with("__")) return missing(value, name, budget);
  if (auto member = member_of(value, name, budget)) return *member;
  const auto element = element_of(value, name);
  return element ? *element : missing(value, name, budget);
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  require_defined(value);
  require_defined(key);
  if (auto element = element_of(value, key)) return *element;
  if (!key.is_string()) return missing(value, to_text(key), budget);
  if (key.string().starts_with("__")) return missing(value, key.string(), budget);
  const auto member = member_of(value, key.string(), budget);
  return member ? *member : missing(value, key.string(), budget);
}

Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step_value,
               Budget& budget) {
  if (&value.listed() != &value) return slice_of(value.listed(), start, stop, step_value, budget);
  require_defined(value);
  if (!value.is_string() && !value.is_sequence())
    throw Problem(fmt::format("{} has no slices", value.type_name()));
  const std::vector<Value> items =
      value.is_string() ? letters_of(value.text()) : elements_of(value);
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t step = step_value.is_none() ? 1 : integer_of(step_value, "a slice's step");
  if (step == 0) throw Problem("a slice's step is not 0");
  const std::int64_t first = bound(start, size, step, step < 0 ? size - 1 : 0);
  const std::int64_t last = bound(stop, size, step, step < 0 ? -1 : size);
  budget.spend(size);
  std::vector<Value> taken;
  for (std::int64_t i = first; step < 0 ? i > last : i < last; i += step)
    taken.push_back(items[static_cast<std::size_t>(i)]);
  if (value.is_sequence()) return Sequence{std::move(taken), value.sequence().is_tuple};
  Text text;
  for (const Value& character : taken)
    text += character.text();
  budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  return text;
}

Value call(const Value& callee, const Arguments& arguments, const std::string& name) {
  if (callee.is_undefined()) throw UndefinedProblem(name);
  if (!callee.is_callable())
    throw Problem(fmt::format("{} is a {}, and cannot be called", name, callee.type_name()));
  return callee.callable().call(arguments);
}

}  // namespace finetune::jinja::detail
