#pragma once
// SPDX-License-Identifier: Apache-2.0
// Fields of a record by the names that the deck or the format gives them.

#include <string>

#include "core/json.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// A column that a format reads: its name, and the key of the deck that chooses another one.
struct Column {
  std::string name;
  std::string key;      ///< "data.prompt_column"
  bool chosen = false;  ///< the deck names it: a record without it is an error even where the
                        ///< format could do without
};

/// The field of `record`, or nullptr if it is missing or null and the deck does not name it.
/// Throws: ErrorKind::input beginning with `where` that names the fields there are and the nearest.
const OrderedJson* find_field(const OrderedJson& record, const Column& column,
                              const std::string& where);

/// As find_field, but missing or null is an error.
const OrderedJson& field(const OrderedJson& record, const Column& column, const std::string& where);

/// The text of a field. Throws: ErrorKind::input beginning with `where` if it is missing or not a
/// string.
std::string text_field(const OrderedJson& record, const Column& column, const std::string& where);

/// As text_field, but missing or null is an empty text.
std::string optional_text_field(const OrderedJson& record, const Column& column,
                                const std::string& where);

/// A list or an object. Cells of tables hold them as JSON text: that is parsed; other texts, and
/// what is no text, stay what they are. Throws: ErrorKind::input beginning with `where` for broken
/// JSON.
OrderedJson structured(OrderedJson value, const std::string& name, const std::string& where);

/// `value` without the fields of objects that are null, at any depth: what Records::pads_nulls is
/// about. Elements of lists stay.
OrderedJson without_nulls(const OrderedJson& value);

/// The text `value`. Throws: ErrorKind::input beginning with `where` if it is none.
std::string text_of(const OrderedJson& value, const std::string& name, const std::string& where);

}  // namespace finetune::data
