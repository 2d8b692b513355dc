// SPDX-License-Identifier: Apache-2.0
// Every template against conversations of our own: their texts, what of them is trained, and what
// is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "core/error.hpp"
#include "data/text/source.hpp"
#include "modules/templates/marked_chats.hpp"
#include "support/folders.hpp"

namespace finetune::tests::marked_test {
namespace {

using data::OrderedJson;

/// The text, with what is trained in ‹ ›.
std::string written(const data::ChatTemplate& chat, const data::Conversation& talk,
                    bool with_prompt) {
  try {
    if (with_prompt) return joined(render_prompt(chat, talk, "c.json:1"));
    return marked(written_chat(render(chat, talk, data::TrainOn::answers, "c.json:1").segments));
  } catch (const core::Error& error) {
    return marked(refused_chat(error, "c.json:1: "));
  }
}

TEST(MarkedChats, AreWrittenTrainedAndRefusedAsTheyWere) {
  std::ifstream file(source_folder() / "tests/golden/templates/marked.json");
  const OrderedJson golden = OrderedJson::parse(file);
  std::map<std::string, data::Conversation> talks;
  for (const OrderedJson& each : golden.at("conversations"))
    talks[each.at("name").get<std::string>()] = conversation(each);
  std::map<std::string, int> compared;
  for (const OrderedJson& each : golden.at("cases")) {
    const auto name = each[0].get<std::string>();
    const data::Conversation& talk = talks.at(each[1].get<std::string>());
    EXPECT_EQ(written(chat_template(name), talk, each[2].get<bool>()), each[3].get<std::string>())
        << name << ": " << each[1];
    ++compared[name];
  }
  for (const data::ChatTemplate& chat : templates::all())
    EXPECT_GE(compared[chat.name], 17) << chat.name;
}

}  // namespace
}  // namespace finetune::tests::marked_test
