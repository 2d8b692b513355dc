// SPDX-License-Identifier: Apache-2.0
#include "core/ordered_json.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace finetune::core {
namespace {

constexpr OrderedJson::binary_t::subtype_type digits_subtype = 1;

/// Builds the value from the parser's events, which have the text of each real number.
class Builder final : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_whole = text.find_first_of(".eE") == std::string::npos;
    return add(is_whole ? from_digits(text) : OrderedJson(value)) != nullptr;
  }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return begin(OrderedJson::object()); }
  bool start_array(std::size_t /*size*/) override { return begin(OrderedJson::array()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

  OrderedJson take() { return std::move(root_); }

 private:
  OrderedJson* add(OrderedJson value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    OrderedJson& parent = *open_.back();
    OrderedJson& added = parent.is_array() ? parent.emplace_back(nullptr) : parent[key_];
    added = std::move(value);
    return &added;
  }
  // What is open is the last of its parent, which grows again only when it is closed: the pointers
  // stay valid.
  bool begin(OrderedJson value) {
    open_.push_back(add(std::move(value)));
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  OrderedJson root_;
  std::vector<OrderedJson*> open_;
  std::string key_;
};

}  // namespace

OrderedJson ordered_json(std::string_view text) {
  Builder builder;
  check(OrderedJson::sax_parse(text, &builder), "parse_json has accepted this text");
  return builder.take();
}

OrderedJson from_digits(std::string_view digits) {
  OrderedJson::binary_t::container_type bytes(digits.begin(), digits.end());
  return OrderedJson::binary(std::move(bytes), digits_subtype);
}

std::optional<std::string_view> exact_digits(const OrderedJson& value) {
  if (!value.is_binary()) return std::nullopt;
  const auto& bytes = value.get_binary();
  if (!bytes.has_subtype() || bytes.subtype() != digits_subtype) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace finetune::core
