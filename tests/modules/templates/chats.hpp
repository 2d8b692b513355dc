#pragma once
// SPDX-License-Identifier: Apache-2.0
// Templates by name, and conversations out of JSON, for the tests of this folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/chat_template.hpp"
#include "formats/chat/message.hpp"
#include "templates/templates.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tests {

inline data::ChatTemplate chat_template(std::string_view name, std::string_view bos = "<s>",
                                        std::string_view eos = "</s>") {
  static const std::vector<data::ChatTemplate> all = templates::all();
  const auto found = std::ranges::find(all, name, &data::ChatTemplate::name);
  if (found == all.end()) throw std::runtime_error("no template " + std::string(name));
  return found->with_tokens(bos, eos);
}

/// {"messages": [...], "tools": [...]}, roles and content as OpenAI names them.
inline data::Conversation conversation(const data::OrderedJson& json) {
  data::Conversation made;
  for (const auto& each : json.at("messages")) {
    auto message = formats::chat::read_message(each, {{"role"}, {"content"}}, "c.json:1");
    if (message) made.messages.push_back(*std::move(message));
  }
  if (json.contains("kwargs")) made.template_kwargs = json.at("kwargs");
  if (json.contains("tools")) made.tools = formats::chat::read_tools(json.at("tools"), "c.json:1");
  return made;
}

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

inline std::string joined(const std::vector<data::Segment>& segments) {
  std::string text;
  for (const data::Segment& segment : segments)
    text += segment.text;
  return text;
}

}  // namespace finetune::tests
