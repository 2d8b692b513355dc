// SPDX-License-Identifier: Apache-2.0
// Templates of every kind of behaviour, as models bring them, against Python's Jinja: texts, and
// what of them is trained (golden/templates/make_kinds.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "modules/templates/marked_chats.hpp"
#include "support/folders.hpp"

namespace finetune::tests::kinds_test {
namespace {

namespace fs = std::filesystem;
using data::OrderedJson;

const fs::path folder = source_folder() / "tests/golden/templates";

OrderedJson golden() {
  std::ifstream file(folder / "kinds.json");
  return OrderedJson::parse(file);
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// `special`: names of the tokenizer's special tokens; `ends`: those at which generation stops.
data::ChatWriter writer(const std::string& name, const OrderedJson& special,
                        const OrderedJson& ends) {
  const auto names = special.get<std::vector<std::string>>();
  data::ChatWriter::Names made;
  made.bos = "<BOS>";
  made.eos = "<EOS>";
  made.ends.find = finder_of(names);
  for (const OrderedJson& end : ends)
    made.ends.ids.push_back(static_cast<std::int32_t>(
        std::ranges::find(names, end.get<std::string>()) - names.begin()));
  return {text_of(folder / "kinds" / (name + ".jinja")), std::move(made)};
}

/// With what is trained in ‹ ›; null where the template refuses the conversation.
OrderedJson written(const data::ChatWriter& chat, const data::Conversation& talk) {
  try {
    return marked(written_chat(chat.render(talk, "c.json:1").segments));
  } catch (const core::Error&) {
    return nullptr;
  }
}

TEST(KindsOfTemplates, AreWrittenAndTrainedAsTextsAloneShow) {
  const OrderedJson all = golden();
  std::size_t compared = 0;
  for (const auto& [name, kind] : all.at("templates").items()) {
    for (const OrderedJson& each : kind.at("cases")) {
      const auto shape = each[0].get<std::string>();
      EXPECT_EQ(written(writer(name, kind.at("special"), each[1]),
                        conversation(all.at("conversations").at(shape))),
                each[2])
          << name << ", " << shape << ", " << each[1];
      compared += each[2].is_null() ? 0 : 1;
    }
  }
  EXPECT_GE(compared, 250);
}

TEST(KindsOfTemplates, HaveAllOneConversationOfEachShape) {
  const OrderedJson all = golden();
  std::size_t num_files = 0;
  for (const auto& file : fs::directory_iterator(folder / "kinds")) {
    ++num_files;
    const OrderedJson& kind = all.at("templates").at(file.path().stem().string());
    for (const auto& [shape, talk] : all.at("conversations").items())
      EXPECT_TRUE(
          std::ranges::any_of(kind.at("cases"), [&](const auto& c) { return c[0] == shape; }))
          << file << ", " << shape;
  }
  EXPECT_EQ(num_files, all.at("templates").size());
}

}  // namespace
}  // namespace finetune::tests::kinds_test
