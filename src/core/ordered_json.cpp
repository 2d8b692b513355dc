// SPDX-License-Identifier: Apache-2.0
#include "core/ordered_json.hpp"

#include <utility>

namespace finetune::core {
namespace {

constexpr OrderedJson::binary_t::subtype_type digits_subtype = 1;

}  // namespace

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
