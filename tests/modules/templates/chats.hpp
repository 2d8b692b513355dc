#pragma once
// SPDX-License-Identifier: Apache-2.0
// Templates by name, and conversations out of JSON, for the tests of this folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/chat_template.hpp"
#include "data/text/detail/chat_writer.hpp"
#include "formats/chat/message.hpp"
#include "templates/templates.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tests {

/// Finds `names` in markup as a tokenizer does, the leftmost first, of several there the longest;
/// their ids are their places in the list. All are special.
inline auto finder_of(std::vector<std::string> names) {
  return [names = std::move(names)](std::string_view text) {
    std::vector<tokenizer::SpecialPlace> places;
    for (std::size_t at = 0; at < text.size();) {
      const std::string* longest = nullptr;
      for (const std::string& name : names)
        if (text.substr(at).starts_with(name) && (!longest || name.size() > longest->size()))
          longest = &name;
      if (longest != nullptr)
        places.push_back({.begin = at,
                          .end = at + longest->size(),
                          .id = static_cast<std::int32_t>(longest - names.data()),
                          .special = true});
      at += longest != nullptr ? longest->size() : 1;
    }
    return places;
  };
}

/// What the tokenizers of the models that these templates are for call their special tokens.
inline std::vector<std::string> special_names(std::string_view bos, std::string_view eos) {
  std::vector<std::string> names = {
      "<|im_start|>", "<|im_end|>",       "<|start_header_id|>", "<|end_header_id|>",
      "<|eot_id|>",   "<|header_start|>", "<|header_end|>",      "<|eot|>",
      "[INST]",       "[/INST]"};
  for (const std::string_view name : {bos, eos})
    if (!name.empty()) names.emplace_back(name);
  return names;
}

/// `chat` for a tokenizer with these begin and end tokens.
inline data::ChatTemplate bound_template(data::ChatTemplate chat, std::string_view bos,
                                         std::string_view eos) {
  data::ChatWriter::Names names;
  names.bos = bos;
  names.eos = eos;
  names.ends.find = finder_of(special_names(bos, eos));
  names.is_known = true;
  chat.writer = std::make_shared<const data::ChatWriter>(chat.text, std::move(names));
  chat.stop = chat.writer->stop();
  return chat;
}

inline data::ChatTemplate chat_template(std::string_view name, std::string_view bos = "<s>",
                                        std::string_view eos = "</s>") {
  static const std::vector<data::ChatTemplate> all = templates::all();
  const auto found = std::ranges::find(all, name, &data::ChatTemplate::name);
  if (found == all.end()) throw std::runtime_error("no template " + std::string(name));
  return bound_template(*found, bos, eos);
}

/// {"messages": [...], "tools": [...]}, roles and content as OpenAI names them.
inline data::Conversation conversation(const data::OrderedJson& json) {
  data::Conversation made;
  for (const auto& each : json.at("messages"))
    made.messages.push_back(formats::chat::read_message(each, {{"role"}, {"content"}}, "c.json:1"));
  if (json.contains("kwargs")) made.template_kwargs = json.at("kwargs");
  if (json.contains("tools")) made.tools = formats::chat::read_tools(json.at("tools"), "c.json:1");
  return made;
}

inline std::string joined(const std::vector<data::Segment>& segments) {
  std::string text;
  for (const data::Segment& segment : segments)
    text += segment.text;
  return text;
}

}  // namespace finetune::tests
