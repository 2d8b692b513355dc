// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of the Hugging Face library, from the whole to its parts.

#include <fmt/format.h>

#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "tokenizer/detail/definition.hpp"

namespace finetune::tokenizer {
namespace {

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

Model read_model(const JsonNode& node, bool byte_level) {
  const auto type = node.find("type");
  if (type && type->as_text() == "Unigram") return Unigram::read(node);
  return Bpe::read(node, byte_level);
}

}  // namespace

Definition read_tokenizer_json(const std::string& text, const std::string& place) {
  const core::Json json = core::parse_json(text, place, 1, most_values);
  const JsonNode root(json, place);
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (const auto version = root.find("version"); version && version->as_text() != "1.0")
    version->refuse("version " + version->as_text(), "this program reads version 1.0");
  warn_of_batch_settings(root);
  auto normalizer = Normalizer::read(root.find("normalizer"));
  auto pre_tokenizer = PreTokenizer::read(root.find("pre_tokenizer"));
  auto model = read_model(root.at("model"), pre_tokenizer.byte_level());
  auto added = AddedTokens::read(root, pieces_of(model), normalizer);
  auto post_processor = PostProcessor::read(root.find("post_processor"), added.vocab_size());
  auto decoder = Decoder::read(root.find("decoder"));
  return {std::move(normalizer),
          std::move(pre_tokenizer),
          std::move(model),
          std::move(added),
          std::move(post_processor),
          std::move(decoder),
          false,
          std::nullopt,
          std::nullopt,
          {}};
}

}  // namespace finetune::tokenizer
