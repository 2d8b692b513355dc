#pragma once
// SPDX-License-Identifier: Apache-2.0
// All files of the quickstart, written into one folder.

#include <filesystem>

namespace finetune::quickstart {

/// Writes corpus.jsonl, train.json, held_out.json and
/// model/{tokenizer,tokenizer_config,config}.json under `folder`, which is made if it is missing.
/// The bytes are the same on every run. Throws: ErrorKind::create if a file cannot be written.
void write_material(const std::filesystem::path& folder);

}  // namespace finetune::quickstart
