// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/tokenizer/added_tokens.hpp"
#include "data/tokenizer/bpe.hpp"
#include "data/tokenizer/decoder.hpp"
#include "data/tokenizer/end_tokens.hpp"
#include "data/tokenizer/json_node.hpp"
#include "data/tokenizer/normalizer.hpp"
#include "data/tokenizer/post_processor.hpp"
#include "data/tokenizer/pre_tokenizer.hpp"

namespace finetune::data {

using tokenizer::AddedToken;
using tokenizer::AddedTokens;
using tokenizer::Bpe;
using tokenizer::Decoder;
using tokenizer::EndTokens;
using tokenizer::JsonNode;
using tokenizer::Matcher;
using tokenizer::Normalizer;
using tokenizer::PostProcessor;
using tokenizer::Prefix;
using tokenizer::PreTokenizer;

namespace {

constexpr std::int64_t file_limit_bytes = 256 << 20;
// Two million pieces, as many merges of two, and half a million added tokens with all their
// members.
constexpr std::int64_t most_values = 12'000'000;

bool has(Encode options, Encode flag) {
  return (static_cast<unsigned>(options) & static_cast<unsigned>(flag)) != 0;
}

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

/// Encodes the words of one text, one after the other.
class Words : public tokenizer::WordSink {
 public:
  Words(const Bpe& bpe, std::string_view text, std::vector<std::int32_t>& ids)
      : bpe_(bpe), text_bytes_(text.size()), ids_(ids) {}
  void take(std::string_view word) override {
    bpe_.encode(word, ids_, scratch_);
    // Each piece between added tokens may grow within its own bound: all of them together, too.
    tokenizer::check_growth(text_bytes_, ids_.size());
  }

 private:
  const Bpe& bpe_;
  std::size_t text_bytes_;
  std::vector<std::int32_t>& ids_;
  Bpe::Scratch scratch_;
};

}  // namespace

struct Tokenizer::Parts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  EndTokens ends;
  std::string folder;
  std::string fingerprint;

  static std::shared_ptr<Parts> read(const JsonNode& root);
  void encode(std::string_view text, Encode options, std::vector<std::int32_t>& ids) const;
  std::optional<std::int32_t> id(std::string_view token) const;
};

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

void Tokenizer::Parts::encode(std::string_view text, Encode options,
                              std::vector<std::int32_t>& ids) const {
  const bool plain = has(options, Encode::plain);
  const bool continues = has(options, Encode::continuation);
  Matcher matcher;
  Words words(bpe, text, ids);
  std::string buffer;
  // Added tokens are taken out of the text before it is normalised, and others of what is left
  // after; what then remains is for the model.
  added.before_normalizer().split(
      text, plain, [&](std::string_view piece, std::size_t begin, const AddedToken* token) {
        if (token != nullptr) {
          ids.push_back(token->id);
          return;
        }
        const Prefix prefix = begin == 0 && continues ? Prefix::left_out : Prefix::allowed;
        const std::string_view normal = normalizer.apply(piece, prefix, buffer, matcher);
        added.after_normalizer().split(
            normal, plain,
            [&](std::string_view part, std::size_t part_begin, const AddedToken* found) {
              if (found != nullptr) {
                ids.push_back(found->id);
              } else {
                pre_tokenizer.run(part, begin == 0 && part_begin == 0, prefix, matcher, words);
              }
            });
      });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Encode options) const {
  if (const auto bad = core::invalid_utf8(text)) {
    core::fail(core::ErrorKind::input,
               {"text", fmt::format("byte {} is not valid UTF-8", *bad), "tokens are made of UTF-8",
                "Convert the data, for example with iconv."});
  }
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 16);
  const PostProcessor& around = parts_->post_processor;
  const bool whole = !has(options, Encode::continuation);
  if (whole) ids = around.before;
  parts_->encode(text, options, ids);
  if (whole) ids.insert(ids.end(), around.after.begin(), around.after.end());
  return ids;
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
