#pragma once
// SPDX-License-Identifier: Apache-2.0
// Texts that a template in Jinja makes of the fields of a record: prompts of a deck, questions of a
// task.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/records/fields.hpp"
#include "data/records/records.hpp"
#include "data/text/format.hpp"
#include "jinja/template.hpp"

namespace finetune::data {

/// What `text` makes no template; nothing if it is one: "line 3: ...".
std::optional<std::string> template_problem(std::string_view text);

/// The fields of a record by their names, of which the values of a template are made.
jinja::Mapping names_of(const OrderedJson& record);

/// Jinja as for questions of tasks: white space stays as it stands, and a field that is not there
/// is an error. The day is always the same: the same record is the same text. Immutable.
class RecordTemplate {
 public:
  /// `key`: what of the deck or of a task's file it is, `file`: that file, for messages; empty: the
  /// deck's. Throws: ErrorKind::input for what is no template.
  RecordTemplate(std::string_view text, std::string key, std::string file = "");

  /// Throws: ErrorKind::input beginning with `where` for a field that is not there, or a text that
  /// cannot be made of what is.
  std::string write(const jinja::Mapping& names, const std::string& where) const;

 private:
  std::string origin() const;

  std::string key_;
  std::string file_;
  std::optional<jinja::Template> template_;
};

/// A text of each record: that of a field's column, or what a template of the deck makes of all.
class FieldText {
 public:
  /// The prompt of a format, for which data.prompt_template may stand.
  static FieldText prompt(const Columns& columns, const Field& field);
  /// The answer, for which data.answer_template may.
  static FieldText answer(const Columns& columns, const Field& field);

  bool is_written() const { return template_.has_value(); }  ///< by a template

  /// Throws: as text_field, and as RecordTemplate::write.
  std::string read(const OrderedJson& record, const std::string& where) const;

 private:
  FieldText(Column column, const std::string& text, const char* key);

  Column column_;
  std::optional<RecordTemplate> template_;
};

}  // namespace finetune::data
