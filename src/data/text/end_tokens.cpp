// SPDX-License-Identifier: Apache-2.0
#include "data/text/end_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/python_json.hpp"

namespace finetune::data {
namespace {

constexpr const char* ends_key = "eos_token_id";

void add_once(std::vector<std::int32_t>& ids, std::int32_t id) {
  if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
}

}  // namespace

std::vector<std::int32_t> end_ids_in(const core::Json& config, const std::string& where) {
  std::vector<std::int32_t> ids;
  if (!config.is_object() || !config.contains(ends_key) || config.at(ends_key).is_null())
    return ids;
  const core::Json& given = config.at(ends_key);
  constexpr std::int64_t end = std::int64_t{1} << 31;
  for (const core::Json& id : given.is_array() ? given : core::Json::array({given})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= end)
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("\"{}\" is {}", ends_key, given.dump()),
                  "an id or a list of ids is expected", "Correct it."});
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> end_tokens(const std::filesystem::path& model_folder,
                                     const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const auto path = model_folder / name;
    std::error_code ignored;
    if (!ids.empty() || !std::filesystem::exists(path, ignored)) continue;
    const core::Json config = core::read_python_json(path, core::largest_config_bytes);
    for (const std::int32_t id : end_ids_in(config, path.string())) {
      if (id >= tokenizer.vocab_size()) {
        core::fail(
            core::ErrorKind::input,
            {path.string(), fmt::format("\"{}\" names the token {}", ends_key, id),
             fmt::format("ids of the model's tokenizer end at {}, so nothing would stop there",
                         tokenizer.vocab_size() - 1),
             "Take both files from the same model."});
      }
      add_once(ids, id);
    }
  }
  if (const auto end = tokenizer.find_eos_id()) add_once(ids, *end);
  return ids;
}

}  // namespace finetune::data
