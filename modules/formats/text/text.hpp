#pragma once
// SPDX-License-Identifier: Apache-2.0
// Plain text, for pre-training and continued pre-training.

#include "data/text/format.hpp"

namespace finetune::formats::text {

/// Documents from
///  - a file of records (JSON, JSONL, Parquet): the field "text", or data.text_column, of each;
///  - any other file: the whole file is one document (UTF-8, taken as it is but for a byte order
///    mark);
///  - a folder or a pattern: every such file, in the order of their names; of a folder, files of
///    records alone if it has any.
/// Documents run on, each followed by the end-of-text token, and are cut into full blocks; loss is
/// taken on every token.
data::Format format();

}  // namespace finetune::formats::text
