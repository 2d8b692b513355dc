// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/post_processor.hpp"

#include <fmt/format.h>

namespace finetune::tokenizer {
namespace {

constexpr std::size_t most_added = 1024;

std::vector<std::int32_t> ids_of(const JsonNode& tokens, const JsonNode& use,
                                 std::int32_t vocab_size) {
  const std::string name = use.text("id");
  const JsonNode entry = tokens.at(name);
  std::vector<std::int32_t> ids;
  for (const JsonNode& id : entry.list("ids")) {
    ids.push_back(id.as_id());
    if (ids.back() >= vocab_size)
      id.refuse(fmt::format("id {}", ids.back()), fmt::format("ids end at {}", vocab_size - 1));
  }
  return ids;
}

/// Puts the ids of one template around those collected so far.
void surround(PostProcessor& processor, const JsonNode& node, std::int32_t vocab_size) {
  node.only({"type", "single", "pair", "special_tokens"});
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  bool text_seen = false;
  for (const JsonNode& part : node.list("single")) {
    part.only({"SpecialToken", "Sequence"});
    if (const auto special = part.find("SpecialToken")) {
      const auto ids = ids_of(node.at("special_tokens"), *special, vocab_size);
      auto& side = text_seen ? after : before;
      side.insert(side.end(), ids.begin(), ids.end());
      continue;
    }
    if (part.at("Sequence").text("id") != "A" || text_seen)
      part.refuse("not the one text", "a template for single texts has the text A once");
    text_seen = true;
  }
  if (!text_seen) node.refuse("the template leaves out the text", "nothing would be learned");
  processor.before.insert(processor.before.begin(), before.begin(), before.end());
  processor.after.insert(processor.after.end(), after.begin(), after.end());
  if (processor.before.size() + processor.after.size() > most_added)
    node.refuse("the template adds too many tokens", fmt::format("{} are possible", most_added));
}

void add(PostProcessor& processor, const JsonNode& node, std::int32_t vocab_size) {
  const std::string type = node.text("type");
  if (type == "Sequence") {
    node.only({"type", "processors"});
    for (const JsonNode& part : node.list("processors"))
      add(processor, part, vocab_size);
  } else if (type == "TemplateProcessing") {
    surround(processor, node, vocab_size);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    node.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    const auto id = [&](const char* key) {
      const JsonNode pair = node.at(key);  // ["</s>", 2]
      const auto parts = pair.as_list();
      if (parts.size() != 2) pair.refuse("not a token and its id", "both are needed");
      const std::int32_t value = parts[1].as_id();
      if (value >= vocab_size)
        pair.refuse(fmt::format("id {}", value), fmt::format("ids end at {}", vocab_size - 1));
      return value;
    };
    processor.before.insert(processor.before.begin(), id("cls"));
    processor.after.push_back(id("sep"));
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    node.refuse_type(type,
                     "Sequence, TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing");
  }
}

}  // namespace

PostProcessor PostProcessor::read(const std::optional<JsonNode>& node, std::int32_t vocab_size) {
  PostProcessor processor;
  if (node) add(processor, *node, vocab_size);
  return processor;
}

}  // namespace finetune::tokenizer
