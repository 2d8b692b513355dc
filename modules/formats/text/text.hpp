#pragma once
// SPDX-License-Identifier: Apache-2.0
// Plain text, for pre-training and continued pre-training.

#include "data/text/format.hpp"

namespace finetune::formats::text {

/// Documents from
///  - a file of records (JSON, JSONL, Parquet): the field "text", or data.text_column, of each;
///  - any other file: the whole file is one document (UTF-8, taken as it is but for a byte order
///    mark);
///  - a folder: every .txt file and file of records directly in it, in the order of their names.
/// Documents run on, each followed by the end-of-text token, and are cut into full blocks; loss is
/// taken on every token.
data::Format format();

}  // namespace finetune::formats::text
