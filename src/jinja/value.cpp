// SPDX-License-Identifier: Apache-2.0
#include "jinja/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/ordered_json.hpp"
#include "jinja/detail/characters.hpp"

namespace finetune::jinja {
const Value* Mapping::find(const Value& key) const {
  if (key.is_string()) return named(key.string());
  for (const auto& [own, value] : items)
    if (own == key) return &value;
  return nullptr;
}

const Value* Mapping::named(std::string_view key) const {
  for (const auto& [own, value] : items)
    if (own.is_string() && own.string() == key) return &value;
  return nullptr;
}

void Mapping::set(const Value& key, Value value) {
  for (auto& [own, held] : items) {
    if (!(own == key)) continue;
    held = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
}

void Budget::spend(std::int64_t steps) {
  steps_ -= steps;
  if (steps_ < 0) throw Problem("the template takes too many steps");
}

void Budget::spend_bytes(std::int64_t bytes) {
  bytes_ -= bytes;
  if (bytes_ < 0) throw Problem("the template writes too much text");
}

Value Budget::undefined(std::string name, const char* holder) const {
  return Value::Undefined{std::move(name), when_undefined_, holder};
}

std::string Value::undefined_name() const {
  const Undefined& undefined = std::get<Undefined>(held_);
  if (undefined.holder == nullptr) return undefined.name;
  return fmt::format("\"{}\" of a {}", undefined.name, undefined.holder);
}

Value Value::from_json(const nlohmann::ordered_json& json, const Origin& origin) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > std::uint64_t{INT64_MAX}) return LongInteger{std::to_string(number)};
      return static_cast<std::int64_t>(number);
    }
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::binary:
      return LongInteger{std::string(core::exact_digits(json).value())};
    case nlohmann::ordered_json::value_t::string:
      return Text(json.get_ref<const std::string&>(), origin);
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json)
        items.push_back(from_json(item, origin));
      return items;
    }
    case nlohmann::ordered_json::value_t::object: {
      Mapping mapping;
      mapping.element = origin.element;
      mapping.is_part = origin.element != Origin::none;
      mapping.items.reserve(json.size());
      for (const auto& [key, value] : json.items())
        mapping.items.emplace_back(Text(key, origin), from_json(value, origin));
      return mapping;
    }
    default:
      return {};
  }
}

Value Value::text_and(Text text, Value structure) {
  Value both;
  both.held_ =
      std::make_shared<const TextAndValue>(TextAndValue{std::move(text), std::move(structure)});
  return both;
}

const Value* Value::structure_or_null() const {
  return holds<const TextAndValue>() ? &get<const TextAndValue>()->structure : nullptr;
}

const Mapping* Value::mapping_or_null() const {
  if (is_mapping()) return &mapping();
  const Value* structure = structure_or_null();
  return structure != nullptr && structure->is_mapping() ? &structure->mapping() : nullptr;
}

std::int64_t Value::integer() const {
  return is_bool() ? (std::get<bool>(held_) ? 1 : 0) : std::get<std::int64_t>(held_);
}

double Value::number() const {
  return is_float() ? std::get<double>(held_) : static_cast<double>(integer());
}

void Value::require_usable() const {
  if (is_strictly_undefined()) throw UndefinedProblem(undefined_name());
}

bool Value::is_true() const {
  require_usable();
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_string()) return listed().is_sequence() ? listed().is_true() : !string().empty();
  if (is_sequence()) return !sequence().items.empty();
  if (is_mapping()) return mapping().is_namespace || !mapping().items.empty();
  return true;
}

const char* Value::type_name() const {
  if (is_undefined()) return "undefined value";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_long_integer()) return "int";
  if (is_string()) return listed().is_sequence() ? "list" : "str";
  if (is_sequence()) return sequence().is_tuple ? "tuple" : "list";
  if (is_mapping()) return mapping().is_namespace ? "namespace" : "dict";
  return "function";
}

bool operator==(const Value& a, const Value& b) {
  a.require_usable();
  b.require_usable();
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  const Value &x = a.listed(), &y = b.listed();
  if (&x != &a || &y != &b) return x == y;
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.held_.index() != b.held_.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_long_integer()) return a.long_integer().digits == b.long_integer().digits;
  if (a.is_sequence())
    return a.sequence().is_tuple == b.sequence().is_tuple &&
           a.sequence().items == b.sequence().items;
  if (!a.is_mapping() || a.mapping().is_namespace) return a.is_same(b);
  const Mapping &own = a.mapping(), &other = b.mapping();
  return own.items.size() == other.items.size() &&
         std::ranges::all_of(own.items, [&](const auto& item) {
           const Value* held = other.find(item.first);
           return held != nullptr && *held == item.second;
         });
}

bool Value::is_same(const Value& other) const {
  if (held_.index() != other.held_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (is_bool() || is_integer()) return integer() == other.integer();
  if (is_float()) return number() == other.number();
  if (is_string()) return &text() == &other.text();
  if (is_long_integer()) return *this == other;
  if (is_sequence()) return get<const Sequence>() == other.get<const Sequence>();
  if (is_mapping()) return get<Mapping>() == other.get<Mapping>();
  return get<const Callable>() == other.get<const Callable>();
}

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [own, value] : named)
    if (own == name) return &value;
  return nullptr;
}

Value Arguments::get(std::size_t place, std::string_view name, Value fallback) const {
  const Value* found = find(place, name);
  return found == nullptr ? std::move(fallback) : *found;
}

void Arguments::require(const std::string& function, std::size_t most,
                        std::initializer_list<std::string_view> names) const {
  if (positional.size() > most)
    throw Problem(
        fmt::format("{} takes at most {} arguments, not {}", function, most, positional.size()));
  for (const auto& [name, value] : named)
    if (std::ranges::find(names, name) == names.end())
      throw Problem(fmt::format("{} has no argument \"{}\"", function, name));
}

int compare(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? sign(a.integer(), b.integer())
                                            : sign(a.number(), b.number());
  // Bytes of UTF-8 have the order of their characters.
  if (a.is_string() && b.is_string()) return sign(a.string(), b.string());
  a.require_usable();
  b.require_usable();
  if (!a.is_sequence() || !b.is_sequence() || a.sequence().is_tuple != b.sequence().is_tuple)
    throw Problem(fmt::format("{} and {} have no order", a.type_name(), b.type_name()));
  const auto &x = a.sequence().items, &y = b.sequence().items;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!(x[i] == y[i])) return compare(x[i], y[i]);
  return sign(x.size(), y.size());
}

bool contains(const Value& container, const Value& item) {
  if (container.is_string() && container.listed().is_sequence())
    return contains(container.listed(), item);
  if (container.is_string()) {
    if (!item.is_string())
      throw Problem(fmt::format("\"in\" a string asks for a string, not {}", item.type_name()));
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_mapping()) return container.mapping().find(item) != nullptr;
  if (container.is_sequence())
    return std::ranges::find(container.sequence().items, item) != container.sequence().items.end();
  const std::vector<Value> all = elements_of(container);
  return std::ranges::find(all, item) != all.end();
}

std::vector<Value> letters_of(const Text& text) {
  std::vector<Value> all;
  for (const std::string_view character : characters_of(text.bytes()))
    all.emplace_back(text.part(character));
  return all;
}

std::vector<Value> elements_of(const Value& value) {
  value.require_usable();
  if (value.is_undefined()) return {};
  if (value.is_sequence()) return value.sequence().items;
  std::vector<Value> all;
  if (value.is_mapping() && !value.mapping().is_namespace) {
    for (const auto& [key, held] : value.mapping().items)
      all.push_back(key);
    return all;
  }
  if (!value.is_string()) throw Problem(fmt::format("{} cannot be looped over", value.type_name()));
  if (const Value* structure = value.structure_or_null()) return elements_of(*structure);
  return letters_of(value.text());
}

}  // namespace finetune::jinja
