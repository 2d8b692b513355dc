#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a template computes with: the values of Python that chat templates see, and their texts.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "jinja/text.hpp"

namespace finetune::jinja {

/// What a template does wrong: an operation that Python refuses, or a limit that it exceeds.
class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What was to have a value, and has none.
class UndefinedProblem : public Problem {
 public:
  /// `where`: in front of the message, "line 3: ".
  explicit UndefinedProblem(std::string name, const std::string& where = "")
      : Problem(where + name + " is undefined"), name_(std::move(name)) {}

  /// "question", "\"text\" of a dict".
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// What becomes of something undefined that is written, tested, looped over or compared.
enum class WhenUndefined {
  is_empty,    ///< it is an empty text, false, or a loop without rounds: Jinja's Undefined
  is_problem,  ///< it ends the rendering: Jinja's StrictUndefined
};

class Value;
struct Arguments;

struct Sequence {
  std::vector<Value> items;
  bool is_tuple = false;
};

/// In the order in which keys were added, as Python keeps them.
struct Mapping {
  std::vector<std::pair<Value, Value>> items;
  bool is_namespace = false;  ///< {% set ns.key = ... %} may write to it
  /// What it is part of, if it was reached from an element of the data, or made of what one says.
  std::int32_t element = Origin::none;
  bool is_part = false;  ///< something inside of that element, such as a call in a message

  const Value* find(const Value& key) const;
  const Value* named(std::string_view key) const;
  void set(const Value& key, Value value);
};

/// What a rendering may do: counts its steps and its text, ends those that do too much, and knows
/// what becomes of something undefined.
class Budget {
 public:
  explicit Budget(std::int64_t most_steps, std::int64_t most_bytes,
                  WhenUndefined when_undefined = WhenUndefined::is_empty)
      : steps_(most_steps), bytes_(most_bytes), when_undefined_(when_undefined) {}

  /// Of each node that is evaluated, and of each element that is made.
  void spend(std::int64_t steps = 1);
  /// Of text that is made.
  void spend_bytes(std::int64_t bytes);
  WhenUndefined when_undefined() const { return when_undefined_; }
  /// `name`: as messages say it; see Value::Undefined.
  Value undefined(std::string name, const char* holder = nullptr) const;

 private:
  std::int64_t steps_, bytes_;
  WhenUndefined when_undefined_;
};

/// Something that a template calls: a macro, a method that belongs to a value, a global function.
struct Callable {
  std::string name;
  std::function<Value(const Arguments&)> call;
  /// Of objects with fields, as `loop`; null: none.
  std::function<std::optional<Value>(const std::string&)> field = nullptr;
};

struct TextAndValue;

/// A whole number beyond 64 bits, which templates only write.
struct LongInteger {
  std::string digits;
};

/// Immutable but for namespaces; copies share lists and dicts.
class Value {
 public:
  /// What has no value; `name` for messages: "message.tools". `holder`: the type of what does not
  /// have it; templates ask for many fields that are not there, so it is put together when needed.
  struct Undefined {
    std::string name;
    WhenUndefined when_used = WhenUndefined::is_empty;
    const char* holder = nullptr;
  };
  struct None {};

  Value() : held_(None{}) {}
  Value(Undefined undefined) : held_(std::move(undefined)) {}
  Value(bool value) : held_(value) {}
  Value(std::int64_t value) : held_(value) {}
  Value(int value) : held_(std::int64_t{value}) {}
  Value(double value) : held_(value) {}
  Value(Text value) : held_(std::make_shared<const Text>(std::move(value))) {}
  Value(std::string value) : Value(Text(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(Sequence value) : held_(std::make_shared<const Sequence>(std::move(value))) {}
  Value(std::vector<Value> items) : Value(Sequence{std::move(items)}) {}
  Value(Mapping value) : held_(std::make_shared<Mapping>(std::move(value))) {}
  Value(Callable value) : held_(std::make_shared<const Callable>(std::move(value))) {}
  Value(LongInteger value) : held_(std::make_shared<const LongInteger>(std::move(value))) {}

  /// Objects keep the order of their keys. Texts in it, and objects, come from `origin`. Whole
  /// numbers beyond 64 bits: core::exact_digits.
  static Value from_json(const nlohmann::ordered_json& json, const Origin& origin = {});
  /// A text that is also the dict or the list which it says: templates that walk through it find
  /// its items. Of a dict the text is the value, and its items are found behind it. A list is the
  /// value (`listed`), and its text takes its place where a list can only fail or be printed.
  static Value text_and(Text text, Value structure);
  static Value tuple(std::vector<Value> items) { return Sequence{std::move(items), true}; }

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  bool is_bool() const { return std::holds_alternative<bool>(held_); }
  bool is_float() const { return std::holds_alternative<double>(held_); }
  bool is_string() const { return holds<const Text>() || holds<const TextAndValue>(); }
  bool is_sequence() const { return holds<const Sequence>(); }
  bool is_mapping() const { return holds<Mapping>(); }
  bool is_callable() const { return holds<const Callable>(); }
  bool is_long_integer() const { return holds<const LongInteger>(); }
  /// Of Python's int, of which True and False are two; within 64 bits.
  bool is_integer() const { return std::holds_alternative<std::int64_t>(held_) || is_bool(); }
  bool is_number() const { return is_integer() || is_float(); }

  // What it is, which the caller knows.
  std::string undefined_name() const;
  std::int64_t integer() const;
  double number() const;  ///< of any number
  const Text& text() const;
  const std::string& string() const { return text().bytes(); }
  const LongInteger& long_integer() const { return *get<const LongInteger>(); }
  const Sequence& sequence() const { return *get<const Sequence>(); }
  const Mapping& mapping() const { return *get<Mapping>(); }
  Mapping& shared_mapping() const { return *get<Mapping>(); }
  const Callable& callable() const { return *get<const Callable>(); }
  /// The dict or the list that its text says (text_and); null: none.
  const Value* structure_or_null() const;
  /// The list which its text says (text_and), itself if there is none: what tests, lengths,
  /// comparisons and slices ask.
  const Value& listed() const {
    const Value* structure = structure_or_null();
    return structure != nullptr && structure->is_sequence() ? *structure : *this;
  }
  /// The dict that it is, or that its text says; null: none.
  const Mapping* mapping_or_null() const;

  bool is_strictly_undefined() const {
    return is_undefined() && std::get<Undefined>(held_).when_used == WhenUndefined::is_problem;
  }
  /// Throws: UndefinedProblem if it is strictly undefined.
  void require_usable() const;
  /// As Python's bool(). Throws: see require_usable.
  bool is_true() const;
  /// "str", "int", "dict"; for messages.
  const char* type_name() const;
  /// As Python's ==. Throws: see require_usable.
  friend bool operator==(const Value& a, const Value& b);
  /// Whether it is the same object, as Python's `is`.
  bool is_same(const Value& other) const;

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<std::shared_ptr<T>>(held_);
  }
  template <typename T>
  const std::shared_ptr<T>& get() const {
    return std::get<std::shared_ptr<T>>(held_);
  }

  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<Mapping>,
               std::shared_ptr<const Callable>, std::shared_ptr<const LongInteger>,
               std::shared_ptr<const TextAndValue>>
      held_;
};

struct TextAndValue {
  Text text;
  Value structure;
};

inline const Text& Value::text() const {
  return holds<const Text>() ? *get<const Text>() : get<const TextAndValue>()->text;
}

struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};

  /// The one at `place` or of that name; null if it was not given.
  const Value* find(std::size_t place, std::string_view name) const;
  Value get(std::size_t place, std::string_view name, Value fallback) const;
  /// Throws: Problem if more than `most` were given by place, or one by a name not in `names`.
  void require(const std::string& function, std::size_t most,
               std::initializer_list<std::string_view> names = {}) const;
};

/// As Python's str(): how it is printed. Undefined: nothing. Throws: see Value::require_usable.
std::string to_text(const Value& value);
/// The same with the origins of what is in it.
Text to_written(const Value& value);
/// As Python's repr().
std::string to_repr(const Value& value);
/// 1.0, 1e-05, inf: the shortest digits that read back, as Python writes them.
std::string float_text(double value);

struct JsonStyle {
  std::optional<std::int64_t> indent = {};
  bool sorts_keys = false;
  bool is_ascii = false;  ///< other characters are written as \uXXXX
  std::optional<std::pair<std::string, std::string>> separators = {};
};
/// As Python's json.dumps. Throws: Problem for what JSON does not have.
std::string to_json(const Value& value, const JsonStyle& style = {});
/// Of the last text in it that data say, but of no element if several say some of it; none if
/// there is none.
Origin data_origin(const Value& value);

/// Negative, zero or positive: as Python's < between numbers, strings or sequences.
/// Throws: Problem for what has no order.
int compare(const Value& a, const Value& b);
/// As Python's `in`. Throws: Problem.
bool contains(const Value& container, const Value& item);
/// What a loop over it yields: elements, keys of a dict, characters. Throws: Problem.
std::vector<Value> elements_of(const Value& value);
/// Those of a text, whatever else it is.
std::vector<Value> letters_of(const Text& text);

}  // namespace finetune::jinja
