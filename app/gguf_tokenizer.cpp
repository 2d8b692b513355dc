// SPDX-License-Identifier: Apache-2.0
#include "gguf_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "data/text/model_template.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// Kinds of tokens, as GGUF numbers them.
enum TokenType : std::int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  defined = 4,
  unused = 5,
  byte = 6,
};

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
};

/// Expressions that cut text, and what llama.cpp calls them. It has them in its code: what is not
/// the same to the letter cuts other tokens.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> expressions = {{
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
}};

/// The parts of a step that is a sequence of others, whose list is called `list`; else the step.
std::vector<core::Json> steps_of(const core::Json& step, const char* list) {
  if (!step.is_object()) return {};
  if (step.value("type", "") != "Sequence") return {step};
  return step.at(list).get<std::vector<core::Json>>();
}

bool is_bytes(const core::Json& step, bool cuts_itself) {
  return step.value("type", "") == "ByteLevel" && !step.value("add_prefix_space", true) &&
         step.value("use_regex", true) == cuts_itself;
}

/// What llama.cpp calls the way that the tokenizer's file says.
std::optional<std::string> splitting_of(const core::Json& json) {
  const std::vector<core::Json> steps =
      steps_of(json.value("pre_tokenizer", core::Json()), "pretokenizers");
  if (steps.size() == 1 && is_bytes(steps[0], true)) return "gpt-2";
  if (steps.size() != 2) return std::nullopt;
  const std::string first = steps[0].value("type", "");
  if (first == "Digits" && steps[0].value("individual_digits", false) && is_bytes(steps[1], true))
    return "smollm";
  if (first != "Split" || steps[0].value("behavior", "") != "Isolated" ||
      steps[0].value("invert", false) || !is_bytes(steps[1], false))
    return std::nullopt;
  const core::Json pattern = steps[0].value("pattern", core::Json());
  const std::string text = pattern.is_object() ? pattern.value("Regex", "") : "";
  for (const auto& [expression, name] : expressions)
    if (text == expression) return std::string(name);
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> merges_of(const core::Json& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const core::Json& merge : model.at("merges")) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
      continue;
    }
    const std::string text = merge.get<std::string>();
    const std::size_t space = text.find(' ');
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

Tokens tokens_of(const fs::path& folder, const core::Json& json, std::int64_t vocab_size) {
  Tokens tokens;
  tokens.types.assign(static_cast<std::size_t>(vocab_size), unused);
  for (std::int64_t i = 0; i < vocab_size; ++i)
    tokens.texts.push_back(fmt::format("[PAD{}]", i));
  const auto put = [&](std::int64_t id, const std::string& text, std::int32_t type) {
    if (id < 0 || id >= vocab_size)
      refuse_gguf(folder,
                  fmt::format("token {} is beyond the model's vocabulary of {}", id, vocab_size),
                  "its row would be missing");
    tokens.texts[static_cast<std::size_t>(id)] = text;
    tokens.types[static_cast<std::size_t>(id)] = type;
  };
  for (const auto& [text, id] : json.at("model").at("vocab").items())
    put(id.get<std::int64_t>(), text, normal);
  for (const core::Json& added : json.value("added_tokens", core::Json::array()))
    put(added.at("id").get<std::int64_t>(), added.at("content").get<std::string>(),
        added.value("special", false) ? control : defined);
  return tokens;
}

void add_bytes(const fs::path& folder, const core::Json& json, Tokens tokens, GgufValues& values) {
  const auto splitting = splitting_of(json);
  if (!splitting)
    refuse_gguf(folder, "its tokenizer cuts text in a way that has no name in GGUF",
                "known: those of GPT-2, SmolLM, Llama 3, Qwen 2 and Mistral's Tekken");
  std::vector<std::string> merges;
  for (const auto& [left, right] : merges_of(json.at("model")))
    merges.push_back(left + " " + right);
  values.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  values.emplace_back("tokenizer.ggml.pre", *splitting);
  values.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  values.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
  values.emplace_back("tokenizer.ggml.merges", std::move(merges));
}

/// Whether a space goes in front of a text; nothing if text is prepared in another way than
/// SentencePiece does.
std::optional<bool> space_in_front(const core::Json& json) {
  const std::string space = "\u2581";
  const core::Json normalizer = json.value("normalizer", core::Json());
  const std::vector<core::Json> cuts =
      steps_of(json.value("pre_tokenizer", core::Json()), "pretokenizers");
  if (normalizer.is_null() && cuts.size() == 1 && cuts[0].value("type", "") == "Metaspace" &&
      cuts[0].value("replacement", "") == space && !cuts[0].value("split", true))
    return cuts[0].value("prepend_scheme", "always") != "never";
  if (!cuts.empty() || !normalizer.is_object()) return std::nullopt;
  const std::vector<core::Json> steps = steps_of(normalizer, "normalizers");
  bool is_in_front = false, replaces = false;
  for (const core::Json& step : steps) {
    const std::string type = step.value("type", "");
    if (type == "Prepend" && step.value("prepend", "") == space)
      is_in_front = true;
    else if (type == "Replace" && step.value("content", "") == space &&
             step.value("pattern", core::Json()) == core::Json({{"String", " "}}))
      replaces = true;
    else
      return std::nullopt;
  }
  return replaces ? std::optional<bool>(is_in_front) : std::nullopt;
}

/// SentencePiece merges what has the largest score. The file of tokens has merges in that order:
/// the sooner a piece can be merged, the more it scores.
std::vector<float> scores_of(const core::Json& model, const Tokens& tokens) {
  std::map<std::string, std::size_t, std::less<>> first;
  const auto merges = merges_of(model);
  for (std::size_t i = 0; i < merges.size(); ++i)
    first.emplace(merges[i].first + merges[i].second, i);
  std::vector<float> scores;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const auto found = first.find(tokens.texts[i]);
    const bool is_piece = tokens.types[i] == normal;
    scores.push_back(!is_piece              ? 0.0F
                     : found != first.end() ? -static_cast<float>(found->second)
                                            : -static_cast<float>(merges.size()));
  }
  return scores;
}

void add_pieces(const fs::path& folder, const core::Json& json, Tokens tokens, GgufValues& values) {
  const auto is_in_front = space_in_front(json);
  if (!is_in_front)
    refuse_gguf(folder, "its tokenizer prepares text in a way that has no name in GGUF",
                "known: SentencePiece's, whose spaces are \u2581");
  const core::Json& model = json.at("model");
  for (int value = 0; value < 256; ++value) {
    const auto found = model.at("vocab").find(fmt::format("<0x{:02X}>", value));
    if (found == model.at("vocab").end())
      refuse_gguf(folder, fmt::format("its tokenizer has no token for the byte {}", value),
                  "text that has it could not be written");
    tokens.types[found->get<std::size_t>()] = byte;
  }
  const core::Json unknown_text = model.value("unk_token", core::Json());
  if (unknown_text.is_string() && model.at("vocab").contains(unknown_text.get<std::string>())) {
    const auto id = model.at("vocab").at(unknown_text.get<std::string>()).get<std::uint32_t>();
    tokens.types[id] = unknown;
    values.emplace_back("tokenizer.ggml.unknown_token_id", id);
  }
  values.emplace_back("tokenizer.ggml.model", std::string("llama"));
  values.emplace_back("tokenizer.ggml.pre", std::string("default"));
  values.emplace_back("tokenizer.ggml.scores", scores_of(model, tokens));
  values.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  values.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
  values.emplace_back("tokenizer.ggml.add_space_prefix", *is_in_front);
}

void add_templates(const fs::path& folder, GgufValues& values) {
  const data::ModelTemplates chats = data::model_templates(folder);
  if (chats.standard) values.emplace_back("tokenizer.chat_template", *chats.standard);
  std::vector<std::string> names;
  for (const auto& [name, text] : chats.named) {
    values.emplace_back("tokenizer.chat_template." + name, text);
    names.push_back(name);
  }
  if (!names.empty()) values.emplace_back("tokenizer.chat_templates", std::move(names));
}

}  // namespace

void refuse_gguf(const fs::path& folder, const std::string& problem, const std::string& why) {
  core::fail(core::ErrorKind::input,
             {folder.string(), problem, why,
              "Use the Hugging Face folder, or llama.cpp's own converter."});
}

void add_gguf_tokenizer(const fs::path& folder, std::int64_t vocab_size, GgufValues& values) {
  // First: it checks the file, and says where it is wrong.
  const auto tokenizer = tokenizer::Tokenizer::load(folder);
  constexpr std::int64_t largest_bytes = std::int64_t{1} << 28;
  const core::Json json = core::read_json(folder / "tokenizer.json", largest_bytes);
  const core::Json& model = json.at("model");
  if (model.value("type", "") != "BPE")
    refuse_gguf(folder, fmt::format("its tokenizer is of the type {}", model.value("type", "none")),
                "tokenizers of the type BPE are written");
  Tokens tokens = tokens_of(folder, json, vocab_size);
  if (model.value("byte_fallback", false))
    add_pieces(folder, json, std::move(tokens), values);
  else
    add_bytes(folder, json, std::move(tokens), values);
  if (const auto eos = tokenizer.find_eos_id())
    values.emplace_back("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(*eos));
  const auto bos = tokenizer.bos_id();
  if (bos) values.emplace_back("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*bos));
  const auto ids = tokenizer.encode("a", tokenizer::Encode::document);
  values.emplace_back("tokenizer.ggml.add_bos_token", bos && !ids.empty() && ids.front() == *bos);
  add_templates(folder, values);
}

}  // namespace finetune::app
