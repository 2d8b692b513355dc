// SPDX-License-Identifier: Apache-2.0
#include "core/ordered_json.hpp"

#include <cstdlib>
#include <string>
#include <utility>

namespace finetune::core {
namespace {

constexpr OrderedJson::binary_t::subtype_type digits_subtype = 1;

}  // namespace

const char* type_name(const OrderedJson& value) {
  return exact_digits(value) ? "number" : value.type_name();
}

Json plain_json(const OrderedJson& value) {
  if (const auto digits = exact_digits(value))
    return std::strtod(std::string(*digits).c_str(), nullptr);
  if (!value.is_structured()) return value;
  Json made = value.is_array() ? Json::array() : Json::object();
  for (const auto& item : value.items()) {
    if (value.is_array())
      made.push_back(plain_json(item.value()));
    else
      made[item.key()] = plain_json(item.value());
  }
  return made;
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
