#pragma once
// SPDX-License-Identifier: Apache-2.0
// Values of MDS by the names of their encodings.

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "data/records/records.hpp"

namespace finetune::data {

/// The value of a field, null where there is none.
inline core::Json mds_field(const core::Json& object, const char* name) {
  return object.is_object() ? object.value(name, core::Json()) : core::Json();
}

/// The value of `bytes`; nothing for encodings that have no form in JSON. Throws: ErrorKind::input
/// beginning with `where` for bytes that are none of the encoding.
std::optional<OrderedJson> mds_value(const std::string& encoding, std::span<const std::byte> bytes,
                                     const std::string& where);

}  // namespace finetune::data
