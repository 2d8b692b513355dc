#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which ids begin and end a text: given by the files next to the tokenizer's.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace finetune::tokenizer {

struct EndTokens {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;

  /// Reads `bos_token` and `eos_token` of `tokenizer_config.json`; where it does not say,
  /// `bos_token_id` and `eos_token_id` (the first of several) of `config.json`, then of
  /// `generation_config.json`, then what the tokenizer's `file` itself says: `otherwise`. A
  /// `bos_token` of null means none. All files may be absent.
  /// `id_of` maps a token's text to its id. Throws: ErrorKind::input for tokens without an id and
  /// ids not below `vocab_size`.
  static EndTokens read(const std::filesystem::path& file, std::int32_t vocab_size,
                        const EndTokens& otherwise,
                        const std::function<std::optional<std::int32_t>(std::string_view)>& id_of);

  /// What `config.json` and `generation_config.json` say alone, for a folder without a tokenizer.
  static EndTokens read_numbers(const std::filesystem::path& model_folder, std::int32_t vocab_size);
};

}  // namespace finetune::tokenizer
