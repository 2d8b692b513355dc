// SPDX-License-Identifier: Apache-2.0
// Writes conversations by Jinja templates: a line of JSON each, {"template", "messages", "tools",
// "kwargs", "bos", "eos", "special": names of special tokens, "ends": those at which generation
// stops}, and in answer {"text", "trained": [[begin, end], ...], "said": the same of what is no
// markup} in bytes, or {"error"}. For comparisons with Python's Jinja: compare_chats.py.
#include <algorithm>
#include <memory>
#include <string>

#include "core/ordered_json.hpp"
#include "data/text/detail/chat_writer.hpp"
#include "data/text/detail/roles.hpp"
#include "modules/templates/chats.hpp"
#include "support/json_lines.hpp"

namespace {

using namespace finetune;
using Json = nlohmann::ordered_json;

data::ChatWriter::Names names_of(const Json& question) {
  const auto special = question.at("special").get<std::vector<std::string>>();
  data::ChatWriter::Names names;
  names.bos = question.value("bos", "");
  names.eos = question.value("eos", "");
  names.ends.find = tests::finder_of(special);
  for (const Json& end : question.at("ends"))
    names.ends.ids.push_back(static_cast<std::int32_t>(
        std::ranges::find(special, end.get<std::string>()) - special.begin()));
  return names;
}

Json answer(const Json& question) {
  data::ChatTemplate chat;
  chat.writer = std::make_shared<const data::ChatWriter>(question.at("template").get<std::string>(),
                                                         names_of(question));
  data::Conversation talk = tests::conversation(question);
  data::settle_roles(chat, data::TrainOn::all, "conversation", talk);
  const data::Rendered made = chat.writer->render(talk, "conversation");
  std::string text;
  Json trained = Json::array(), said = Json::array();
  for (const data::Segment& segment : made.segments) {
    const Json range = {text.size(), text.size() + segment.text.size()};
    if (segment.trained) trained.push_back(range);
    if (!segment.markup) said.push_back(range);
    text += segment.text;
  }
  return {{"text", text}, {"trained", trained}, {"said", said}};
}

}  // namespace

int main() {
  finetune::tests::answer_lines(answer);
}
