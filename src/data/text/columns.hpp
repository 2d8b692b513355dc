#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which columns of the data the fields of a format are read from.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "data/records/fields.hpp"
#include "data/text/format.hpp"

namespace finetune::data {

/// The column of `field`: what the deck chooses, else the field's own name.
Column column_of(const Columns& columns, const Field& field);

/// Whether `record` has the column of `field`.
bool has_column(const OrderedJson& record, const Columns& columns, const Field& field);

/// Whether the deck names any column.
bool names_columns(const Columns& columns);

/// Everything that the deck says of columns, a line each: decides what samples are read.
std::string describe(const Columns& columns);

/// What formats call their fields: names that data.columns may have, in the order of their bytes.
std::vector<std::string> field_names(std::span<const Format> formats);

/// What is wrong with a choice of columns, and what to do.
struct ColumnProblem {
  std::string key;  ///< of [data]: "columns.instruction", "prompt_template"
  std::string problem;
  std::string why;
  std::string remedy;
};

/// The first thing wrong with the columns and templates that the deck chooses for data of these
/// formats: a name in data.columns that is a field of none of them, a field whose column is chosen
/// twice, a template that none of them takes or that stands for a column that is chosen, too, names
/// of messages' parts where none of them has messages.
std::optional<ColumnProblem> column_problem(const Columns& columns,
                                            std::span<const Format* const> formats);

}  // namespace finetune::data
