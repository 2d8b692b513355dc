#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tokens at which a model stops to write.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// `eos_token_id` of a configuration: none, one or a list. Throws: ErrorKind::input beginning with
/// `where` if it is anything else.
std::vector<std::int32_t> end_ids_in(const core::Json& config, const std::string& where);

/// All ids at which generation stops, each once: `eos_token_id` of the folder's
/// generation_config.json; where that file says nothing, of config.json, as transformers has it;
/// then the tokenizer's own end token. Both files may be absent, and the list empty. Throws:
/// ErrorKind::input for a damaged file, and for an id that is not in the vocabulary.
std::vector<std::int32_t> end_tokens(const std::filesystem::path& model_folder,
                                     const tokenizer::Tokenizer& tokenizer);

}  // namespace finetune::data
