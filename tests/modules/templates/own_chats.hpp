#pragma once
// SPDX-License-Identifier: Apache-2.0
// Templates as models bring them, written for a test, and what is trained by them.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/source.hpp"
#include "modules/templates/chats.hpp"
#include "modules/templates/marked_chats.hpp"

namespace finetune::tests {

inline const std::vector<std::string> own_special = {
    "<s>", "<u>", "<a>", "<t>", "<e>", "<end>", "<think>", "</think>", "<call>", "</call>"};

/// A model's own. `ends`: at which generation stops.
inline data::ChatTemplate own_template(const std::string& jinja,
                                       const std::vector<std::string>& ends = {}) {
  data::ChatWriter::Names names;
  names.eos = "<e>";
  names.ends.find = finder_of(own_special);
  for (const std::string& end : ends)
    names.ends.ids.push_back(
        static_cast<std::int32_t>(std::ranges::find(own_special, end) - own_special.begin()));
  data::ChatTemplate own;
  own.name = "the model's own";
  own.text = jinja;
  own.writer = std::make_shared<const data::ChatWriter>(jinja, std::move(names));
  return own;
}

inline data::Conversation talk(std::string_view messages, std::string_view more = "") {
  return conversation(data::OrderedJson::parse("{\"messages\": [" + std::string(messages) + "]" +
                                               std::string(more) + "}"));
}

inline constexpr const char* two_turns =
    R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
       {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"})";

/// What is trained in ‹ ›.
inline std::string written(const data::ChatTemplate& chat, const data::Conversation& talk) {
  return marked(written_chat(render(chat, talk, data::TrainOn::answers, "x.jsonl:3").segments));
}
inline std::string written(const std::string& jinja, const std::vector<std::string>& ends = {}) {
  return written(own_template(jinja, ends), talk(two_turns));
}

}  // namespace finetune::tests
