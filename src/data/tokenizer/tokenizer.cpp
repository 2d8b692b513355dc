// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/tokenizer/parts.hpp"

namespace finetune::data {

using tokenizer::AddedToken;
using tokenizer::AddedTokens;
using tokenizer::Bpe;
using tokenizer::Decoder;
using tokenizer::EndTokens;
using tokenizer::JsonNode;
using tokenizer::Normalizer;
using tokenizer::PostProcessor;
using tokenizer::PreTokenizer;

namespace {

constexpr std::int64_t file_limit_bytes = 256 << 20;
// Two million pieces, as many merges of two, and half a million added tokens with all their
// members.
constexpr std::int64_t most_values = 12'000'000;

/// Settings of the program that saved the file, for batches it made; samples are cut and filled
/// here by what the deck says.
void warn_of_batch_settings(const JsonNode& root) {
  for (const char* key : {"truncation", "padding"}) {
    if (!root.find(key)) continue;
    log::warn(fmt::format("{}: \"{}\" is not used (the deck decides lengths).",
                          core::printable(root.place()), key));
  }
}

std::filesystem::path tokenizer_file(const std::filesystem::path& model_folder) {
  const auto path = model_folder / "tokenizer.json";
  if (!std::filesystem::exists(path) && std::filesystem::exists(model_folder / "tokenizer.model")) {
    core::fail(core::ErrorKind::input,
               {path.string(), "no such file", "only a SentencePiece tokenizer.model is here",
                "Convert it once: transformers' AutoTokenizer.from_pretrained(FOLDER)"
                ".save_pretrained(FOLDER) writes tokenizer.json."});
  }
  return path;
}

}  // namespace

std::shared_ptr<Tokenizer::Parts> Tokenizer::Parts::read(const JsonNode& root) {
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (const auto version = root.find("version"); version && version->as_text() != "1.0")
    version->refuse("version " + version->as_text(), "this program reads version 1.0");
  warn_of_batch_settings(root);
  auto normalizer = Normalizer::read(root.find("normalizer"));
  auto pre_tokenizer = PreTokenizer::read(root.find("pre_tokenizer"));
  auto bpe = Bpe::read(root.at("model"), pre_tokenizer.byte_level());
  auto added = AddedTokens::read(root, bpe.pieces(), normalizer);
  auto post_processor = PostProcessor::read(root.find("post_processor"), added.vocab_size());
  auto decoder = Decoder::read(root.find("decoder"));
  return std::make_shared<Parts>(Parts{std::move(normalizer),
                                       std::move(pre_tokenizer),
                                       std::move(bpe),
                                       std::move(added),
                                       std::move(post_processor),
                                       std::move(decoder),
                                       {},
                                       {},
                                       {}});
}

Tokenizer Tokenizer::load(const std::filesystem::path& model_folder) {
  const auto path = tokenizer_file(model_folder);
  const std::string text = core::read_text(path, file_limit_bytes);
  std::shared_ptr<Parts> parts;
  {
    const core::Json json = core::parse_json(text, path.string(), 1, most_values);
    parts = Parts::read(JsonNode(json, path.string()));
  }
  parts->folder = model_folder.string();
  parts->ends = EndTokens::read(model_folder, parts->added.vocab_size(),
                                [&](std::string_view token) { return parts->id(token); });
  parts->fingerprint =
      core::fingerprint(fmt::format("{} {} {}", core::fingerprint(text),
                                    parts->ends.bos.value_or(-1), parts->ends.eos.value_or(-1)));
  return Tokenizer(std::move(parts));
}

std::optional<std::int32_t> Tokenizer::Parts::id(std::string_view token) const {
  if (const AddedToken* found = added.find(token)) return found->id;
  const std::int32_t found = bpe.pieces().find(token);
  if (found == tokenizer::Vocabulary::none) return std::nullopt;
  return found;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= parts_->added.vocab_size()) {
      core::fail(core::ErrorKind::input,
                 {parts_->folder, fmt::format("no token has id {}", id),
                  fmt::format("ids end at {}", parts_->added.vocab_size() - 1),
                  "Take model and tokenizer from the same folder."});
    }
    const AddedToken* token = parts_->added.find(id);
    if (token == nullptr) {
      pieces.emplace_back(parts_->bpe.pieces().piece(id));
    } else if (!skip_special || !token->special) {
      pieces.emplace_back(parts_->added.decoded(*token));
    }
  }
  return parts_->decoder.decode(std::move(pieces));
}

std::int64_t Tokenizer::vocab_size() const {
  return parts_->added.vocab_size();
}

std::optional<std::int32_t> Tokenizer::id(std::string_view token) const {
  return parts_->id(token);
}

std::optional<std::int32_t> Tokenizer::bos_id() const {
  return parts_->ends.bos;
}

std::int32_t Tokenizer::eos_id() const {
  if (parts_->ends.eos) return *parts_->ends.eos;
  core::fail(core::ErrorKind::input,
             {parts_->folder, "no end token is named", "answers must end with one",
              "Add \"eos_token\" to tokenizer_config.json or \"eos_token_id\" to config.json."});
}

std::string Tokenizer::fingerprint() const {
  return parts_->fingerprint;
}

}  // namespace finetune::data
