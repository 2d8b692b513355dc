#pragma once
// SPDX-License-Identifier: Apache-2.0
// JSON that others wrote, from the parser's events: checked while it is built.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/ordered_json.hpp"
#include "core/text.hpp"

namespace finetune::core::detail {

/// The start of a text that may be as long as the file. (A character cut in two is escaped when it
/// is printed.)
inline std::string start_of(std::string text) {
  constexpr std::size_t longest = 300;
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

/// Builds a `Value`, which is Json or OrderedJson. Refuses what parse_json says, but for what is
/// wrong with the text itself: then the library's error is thrown.
template <typename Value>
class JsonBuilder final : public nlohmann::json_sax<Value> {
  using Base = nlohmann::json_sax<Value>;

 public:
  JsonBuilder(std::string where, std::int64_t most_values)
      : where_(std::move(where)), most_values_(most_values) {}

  Value take() { return std::move(root_); }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(typename Base::number_integer_t value) override {
    return add(value) != nullptr;
  }
  bool number_unsigned(typename Base::number_unsigned_t value) override {
    return add(value) != nullptr;
  }
  bool number_float(typename Base::number_float_t value,
                    const typename Base::string_t& text) override {
    if constexpr (is_ordered)
      if (text.find_first_of(".eE") == std::string::npos) return add(from_digits(text)) != nullptr;
    return add(value) != nullptr;
  }
  bool string(typename Base::string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(typename Base::binary_t& /*value*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return begin(Value::object()); }
  bool start_array(std::size_t /*size*/) override { return begin(Value::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(typename Base::string_t& name) override {
    require_depth();
    Open& open = open_.back();
    auto& fields = open.value->template get_ref<typename Value::object_t&>();
    if constexpr (is_ordered) {
      if (has_name(open, fields, name)) refuse_twice(name);
      field_ = &fields.emplace_back(std::move(name), nullptr).second;
    } else {
      const auto [place, is_new] = fields.try_emplace(std::move(name), nullptr);
      if (!is_new) refuse_twice(place->first);
      field_ = &place->second;
    }
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    if (const auto* broken = dynamic_cast<const typename Value::parse_error*>(&error))
      throw *broken;
    throw dynamic_cast<const typename Value::out_of_range&>(error);
  }

 private:
  static constexpr bool is_ordered = std::is_same_v<Value, OrderedJson>;
  static constexpr std::size_t deepest = 64;

  struct Open {
    Value* value;
    std::set<std::string> names = {};  ///< of an object with so many that looking at each is slow
  };

  void require_depth() const {
    if (open_.size() <= deepest) return;
    fail(ErrorKind::input,
         {where_, fmt::format("JSON is nested deeper than {} levels", deepest),
          "such files only occur as attacks", "Remove the file, or create it again."});
  }

  [[noreturn]] void refuse_twice(const std::string& name) const {
    fail(ErrorKind::input,
         {where_, fmt::format("JSON key \"{}\" occurs twice", start_of(one_line(name))),
          "only one of the two could be meant", "Remove one."});
  }

  /// Whether `fields` have the name already; remembers it if there are many.
  template <typename Fields>
  static bool has_name(Open& open, const Fields& fields, const std::string& name) {
    constexpr std::size_t few = 16;
    if (fields.size() < few) {
      for (const auto& field : fields)
        if (field.first == name) return true;
      return false;
    }
    if (open.names.empty())
      for (const auto& field : fields)
        open.names.insert(field.first);
    return !open.names.insert(name).second;
  }

  Value* add(Value value) {
    if (++num_values_ > most_values_)
      fail(ErrorKind::input,
           {where_, fmt::format("JSON holds more than {} values", with_commas(most_values_)),
            "they would take many times the memory of the text", "Is it the right file?"});
    require_depth();
    Value* place = &root_;
    if (!open_.empty()) {
      Value& parent = *open_.back().value;
      if (parent.is_array()) return &parent.emplace_back(std::move(value));
      place = field_;
    }
    *place = std::move(value);
    return place;
  }
  // What is open is the last of its parent, which grows again only when it is closed: the pointers
  // stay valid.
  bool begin(Value value) {
    Value* added = add(std::move(value));
    open_.push_back({added});
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  std::string where_;
  std::int64_t most_values_, num_values_ = 0;
  Value root_;
  std::vector<Open> open_;
  Value* field_ = nullptr;  ///< of the object that is open: what its last key is to be
};

}  // namespace finetune::core::detail
