// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "tokenizer/detail/model_file.hpp"
#include "tokenizer/detail/parts.hpp"

namespace finetune::tokenizer {

namespace {

constexpr std::int64_t file_limit_bytes = 256 << 20;

Definition read_definition(const std::filesystem::path& path, const std::string& content) {
  const std::string place = path.string();
  if (path.filename() == "tokenizer.json") return read_tokenizer_json(content, place);
  const auto beside = SideFiles::read(path.parent_path());
  if (path.filename() == "tekken.json") return read_tekken(content, place, beside);
  using Kind = TiktokenKind;
  if (path.extension() == ".tiktoken") return read_tiktoken(content, place, Kind::qwen, beside);
  // The first byte of SentencePiece's message, its field 1, is no digit of base64.
  if (!content.empty() && content[0] != '\n')
    return read_tiktoken(content, place, Kind::llama, beside);
  return read_sentencepiece(content, place, beside);
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& model_folder) {
  const auto path = find_tokenizer(model_folder);
  const std::string content = core::read_text(path, file_limit_bytes);
  auto parts = std::make_shared<Parts>(read_definition(path, content));
  parts->file = path;
  parts->ends = EndTokens::read(path, parts->added.vocab_size(), {parts->bos, parts->eos},
                                [&](std::string_view token) { return parts->id(token); });
  parts->fingerprint = core::fingerprint(
      fmt::format("{} {} {}{}", core::fingerprint(content), parts->ends.bos.value_or(-1),
                  parts->ends.eos.value_or(-1), parts->settings));
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::of_ids(const std::filesystem::path& model_folder, std::int64_t vocab_size) {
  using namespace tokenizer;
  const core::Json nothing;
  const JsonNode node(nothing, model_folder.string());
  Bpe none = Bpe::of_ranks(std::make_unique<Vocabulary>(0), {}, {}, node);
  AddedTokens no_added = AddedTokens::of({}, none.pieces(), node);
  auto parts = std::make_shared<Parts>(Definition{Normalizer(),
                                                  PreTokenizer(),
                                                  std::move(none),
                                                  std::move(no_added),
                                                  PostProcessor(),
                                                  Decoder::of_bytes(),
                                                  false,
                                                  {},
                                                  {},
                                                  ""});
  parts->num_ids = vocab_size;
  parts->file = model_folder;
  parts->ends = EndTokens::read_numbers(model_folder, static_cast<std::int32_t>(vocab_size));
  parts->fingerprint =
      core::fingerprint(fmt::format("ids below {} {} {}", vocab_size, parts->ends.bos.value_or(-1),
                                    parts->ends.eos.value_or(-1)));
  return Tokenizer(std::move(parts));
}

bool Tokenizer::has_ids_only() const {
  return parts_->num_ids > 0;
}

std::optional<std::int32_t> Tokenizer::Parts::id(std::string_view token) const {
  if (const AddedToken* found = added.find(token)) return found->id;
  const std::int32_t found = pieces_of(model).find(token);
  if (found == Vocabulary::none) return std::nullopt;
  return found;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (has_ids_only()) {
      pieces.push_back(fmt::format("{}{}", pieces.empty() ? "" : " ", id));
      continue;
    }
    if (id < 0 || id >= parts_->added.vocab_size()) {
      core::fail(core::ErrorKind::input,
                 {parts_->file.string(), fmt::format("no token has id {}", id),
                  fmt::format("ids end at {}", parts_->added.vocab_size() - 1),
                  "Take model and tokenizer from the same folder."});
    }
    const AddedToken* token = parts_->added.find(id);
    if (token == nullptr) {
      pieces.emplace_back(pieces_of(parts_->model).piece(id));
    } else if (!skip_special || !token->special) {
      pieces.emplace_back(parts_->added.decoded(*token));
    }
  }
  if (has_ids_only()) return fmt::format("{}", fmt::join(pieces, ""));
  return parts_->decoder.decode(std::move(pieces));
}

bool Tokenizer::is_added(std::int32_t id) const {
  return parts_->added.find(id) != nullptr;
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto* added = parts_->added.find(id);
  return added != nullptr && added->special;
}

std::int64_t Tokenizer::vocab_size() const {
  return has_ids_only() ? parts_->num_ids : parts_->added.vocab_size();
}

std::optional<std::int32_t> Tokenizer::id(std::string_view token) const {
  return parts_->id(token);
}

std::optional<std::int32_t> Tokenizer::bos_id() const {
  return parts_->ends.bos;
}

std::optional<std::int32_t> Tokenizer::find_eos_id() const {
  return parts_->ends.eos;
}

std::int32_t Tokenizer::eos_id() const {
  if (parts_->ends.eos) return *parts_->ends.eos;
  core::fail(
      core::ErrorKind::input,
      {parts_->file.parent_path().string(), "no end token is named", "answers must end with one",
       "Add \"eos_token\" to tokenizer_config.json or \"eos_token_id\" to config.json."});
}

const std::filesystem::path& Tokenizer::file() const {
  return parts_->file;
}

std::string Tokenizer::fingerprint() const {
  return parts_->fingerprint;
}

}  // namespace finetune::tokenizer
