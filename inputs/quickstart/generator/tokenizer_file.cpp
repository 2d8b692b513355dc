// SPDX-License-Identifier: Apache-2.0
#include "generator/tokenizer_file.hpp"

#include "core/json.hpp"

namespace finetune::quickstart {
namespace {

// Keys stay in the order in which they are written here.
using Json = nlohmann::ordered_json;

constexpr const char* begin_of_text = "<|begin_of_text|>";
constexpr const char* end_of_text = "<|end_of_text|>";

// Llama 3's split pattern: contractions, words with one leading mark or blank, numbers of up to
// three digits, symbols with the line ends behind them, line ends, blanks.
constexpr const char* split_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string characters(const std::string& bytes) {
  std::string text;
  for (const char c : bytes)
    text += byte_character(static_cast<unsigned char>(c));
  return text;
}

std::string dump(const Json& json) {
  return json.dump(1) + "\n";
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

Json added_token(std::size_t id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

/// Puts the begin token before a text.
Json post_processor(std::size_t begin_id) {
  const Json begin = {{"SpecialToken", {{"id", begin_of_text}, {"type_id", 0}}}};
  const auto sequence = [](const char* id, int type) {
    return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({begin, sequence("A", 0)})},
          {"pair", Json::array({begin, sequence("A", 0), sequence("B", 1)})},
          {"special_tokens",
           {{begin_of_text,
             {{"id", begin_of_text},
              {"ids", Json::array({begin_id})},
              {"tokens", Json::array({begin_of_text})}}}}}};
}

Json bpe_model(const Merges& merges) {
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < merges.tokens.size(); ++id) {
    vocabulary[characters(merges.tokens[id])] = id;
  }
  Json pairs = Json::array();
  for (const auto& [left, right] : merges.pairs) {
    pairs.push_back(characters(merges.tokens[left]) + " " + characters(merges.tokens[right]));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(pairs)}};
}

}  // namespace

std::string tokenizer_json(const Merges& merges) {
  const std::size_t begin_id = merges.tokens.size();
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", split_pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return dump({{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", Json::array({added_token(begin_id, begin_of_text),
                                             added_token(begin_id + 1, end_of_text)})},
               {"normalizer", nullptr},
               {"pre_tokenizer",
                {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}}},
               {"post_processor", post_processor(begin_id)},
               {"decoder", byte_level()},
               {"model", bpe_model(merges)}});
}

std::string tokenizer_config_json() {
  return dump({{"bos_token", begin_of_text},
               {"eos_token", end_of_text},
               {"clean_up_tokenization_spaces", false},
               {"model_max_length", 512},
               {"tokenizer_class", "PreTrainedTokenizerFast"}});
}

std::string model_config_json(std::size_t vocab_size) {
  return dump({{"architectures", Json::array({"LlamaForCausalLM"})},
               {"model_type", "llama"},
               {"vocab_size", vocab_size},
               {"hidden_size", 256},
               {"intermediate_size", 704},
               {"num_hidden_layers", 4},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"hidden_act", "silu"},
               {"max_position_embeddings", 512},
               {"rms_norm_eps", 1e-5},
               {"rope_theta", 10000.0},
               {"rope_scaling", nullptr},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"mlp_bias", false},
               {"initializer_range", 0.06},
               {"tie_word_embeddings", true},
               {"bos_token_id", vocab_size - 2},
               {"eos_token_id", vocab_size - 1},
               {"use_cache", true},
               {"torch_dtype", "bfloat16"}});
}

}  // namespace finetune::quickstart
