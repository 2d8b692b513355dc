#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a program's configurations look like: one file each, mostly tables.

#include <span>
#include <string_view>

#include "migrate/detail/draft.hpp"

namespace finetune::migrate {

/// A value that holds there when the file is silent. Those of adapters count where there is one.
struct Default {
  std::string_view key;    ///< ours
  std::string_view value;  ///< as in TOML
};

struct Source {
  std::string_view name;
  std::string_view title;
  std::span<const std::string_view> marks;  ///< dotted keys, of which each is a sign of it
  std::span<const Row> rows;
  std::span<const Row> more_rows;  ///< where `rows` have none
  std::span<const Default> defaults;
  /// What its keys say together: data sets, matrices with adapters, facts under another name.
  void (*read)(const Node& root, Draft& draft);
};

/// In the order in which they are recognised.
std::span<const Source* const> sources();

extern const Source axolotl, deepspeed, litgpt, llama_factory, torchtune, trl;
/// Of TrainingArguments, which several build upon, and of PEFT.
std::span<const Row> hugging_face_rows();

/// Takes every key of `root` by the rows of `source`; names begin with `prefix`.
void translate(const Source& source, const Node& root, const std::string& prefix, Draft& draft);

/// Whether one of its marks is there.
bool is_from(const Source& source, const Node& root);

}  // namespace finetune::migrate
