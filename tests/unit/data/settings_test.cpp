// SPDX-License-Identifier: Apache-2.0
#include "data/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/text/columns.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::settings_test {
namespace {

std::vector<Format> formats() {
  Format alpaca{"alpaca", Layout::separate, nullptr};
  alpaca.fields = {{"instruction", &Columns::prompt, "data.prompt_column"},
                   {"input", &Columns::input, "data.input_column"},
                   {"output", &Columns::answer, "data.answer_column"}};
  alpaca.prompt_fields = {"instruction", "input"};
  alpaca.answer_fields = {"output"};
  Format text{"text", Layout::continuous, nullptr};
  text.fields = {{"text", &Columns::text, "data.text_column"}};
  return {alpaca, text};
}

DataSettings read(const std::string& text) {
  deck::Deck deck(text, "input.toml", {});
  deck::Table table = deck.table("data", "What the model is trained on.");
  DataSettings settings;
  const std::vector<Format> known = formats();
  settings.bind(table, known, {"llama3"});
  deck.finish();
  return settings;
}

std::string refusal_of(const std::string& text) {
  return tests::refusal([&] { read(text); });
}

TEST(DataSettings, DefaultsStopAtMaskedSamplesAndCutLongOnes) {
  const DataSettings settings = read("[data]\npath = \"d.json\"\n");
  const DatasetOptions options = settings.options("training data", 32000);
  EXPECT_EQ(options.name, "training data");
  EXPECT_EQ(options.vocab_size, 32000);
  EXPECT_EQ(options.max_seq_length, 512);
  EXPECT_EQ(options.on_overlong, OnOverlong::truncate);
  EXPECT_EQ(options.on_masked, OnMasked::error);
  EXPECT_EQ(settings.order(), SampleOrder::shuffled);
}

TEST(DataSettings, ReadsEveryKey) {
  const DataSettings settings = read(
      "[data]\npath = \"d\"\nformat = \"text\"\nvalidation_fraction = 0.1\nmax_seq_length = 64\n"
      "on_overlong = \"drop\"\non_masked = \"drop\"\nshuffle = false\n");
  EXPECT_EQ(settings.paths, std::vector<std::string>{"d"});
  EXPECT_EQ(settings.formats, std::vector<std::string>{"text"});
  EXPECT_EQ(settings.chat_template, "auto");
  EXPECT_EQ(settings.validation_fraction, 0.1);
  EXPECT_EQ(settings.options("", 1).max_seq_length, 64);
  EXPECT_EQ(settings.options("", 1).on_overlong, OnOverlong::drop);
  EXPECT_EQ(settings.options("", 1).on_masked, OnMasked::drop);
  EXPECT_EQ(settings.order(), SampleOrder::as_read);
  EXPECT_EQ(read("[data]\npath = \"d\"\non_overlong = \"error\"\n").options("", 1).on_overlong,
            OnOverlong::error);
}

TEST(DataSettings, ReadsSeveralDataSets) {
  const DataSettings settings = read(
      "[data]\npath = [\"a\", \"b\"]\nformat = [\"text\", \"alpaca\"]\nweights = [1, 2.5]\n"
      "template = \"llama3\"\ntrain_on = \"all\"\nspecial_names = \"tokens\"\n"
      "prompt_column = \"q\"\n");
  EXPECT_EQ(settings.format_of(0), "text");
  EXPECT_EQ(settings.format_of(1), "alpaca");
  EXPECT_EQ(settings.weights, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(settings.columns.prompt, "q");
  EXPECT_EQ(settings.chat_template, "llama3");
}

TEST(DataSettings, RefusesListsOfDifferentLengths) {
  const std::string text = refusal_of(
      "[data]\npath = [\"a\", \"b\", \"c\"]\nformat = [\"text\", \"alpaca\"]\nweights = [1]\n"
      "validation_path = \"v\"\n");
  for (const char* part :
       {"input.toml:3: data.format has 2 entries, data.path 3 (each data set has one format). Give "
        "one for all, or one for each.",
        "input.toml:4: data.weights has 1 entries, data.path 3 (each data set has one weight). "
        "Give "
        "one for each, or none.",
        "input.toml:5: data.validation_path has 1 entries, data.format 2 (the formats belong to "
        "the validation data as well). Give as many, or one format for all."}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(DataSettings, RefusesWeightsThatAreNotNumbersOfPasses) {
  for (const char* weight : {"0.0", "-1.0", "1000001.0", "inf", "nan"}) {
    const std::string text =
        refusal_of(std::string("[data]\npath = \"a\"\nweights = [") + weight + "]\n");
    EXPECT_TRUE(text.starts_with("78: ")) << weight << ": " << text;
  }
  EXPECT_EQ(read("[data]\npath = \"a\"\nformat = \"text\"\nweights = [1e6]\n").weights,
            std::vector<double>{1e6});
}

TEST(DataSettings, RefusesTwoSourcesOfValidationData) {
  const std::string text =
      refusal_of("[data]\npath = \"d\"\nvalidation_path = \"v\"\nvalidation_fraction = 0.1\n");
  EXPECT_TRUE(text.starts_with("78: ")) << text;
  EXPECT_NE(text.find("input.toml:4"), std::string::npos) << text;
  EXPECT_NE(text.find("data.validation_path is given too (validation data come from one of the "
                      "two). Remove one."),
            std::string::npos)
      << text;
}

TEST(DataSettings, RefusesValuesThatMakeNoSense) {
  const std::string text =
      refusal_of("[data]\nformat = \"alpacca\"\nmax_seq_length = 1\nvalidation_fraction = 1.0\n");
  for (const char* part : {"path", "input.toml:2", "input.toml:3", "input.toml:4"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(DataSettings, ColumnsHaveTheNamesOfTheFieldsOfTheFormats) {
  const std::string begin = "[data]\npath = \"d\"\n";
  const DataSettings settings =
      read(begin + "format = \"alpaca\"\ncolumns = { instruction = \"q\", output = \"a\" }\n");
  EXPECT_EQ(settings.columns.mapped,
            (std::map<std::string, std::string>{{"instruction", "q"}, {"output", "a"}}));
  EXPECT_EQ(read(begin + "columns = { text = \"t\" }\n").columns.mapped.at("text"), "t");
  EXPECT_NE(refusal_of(begin + "columns = { instuction = \"q\" }\n")
                .find("input.toml:3: data.columns has no 'instuction' (its names are input, "
                      "instruction, output, text). Did you mean 'instruction'?"),
            std::string::npos);
  EXPECT_NE(
      refusal_of(begin + "format = \"alpaca\"\ncolumns = { output = \"a\", text = \"t\" }\n")
          .find("input.toml:4: data.columns has 'text', which is no field here (the fields of the "
                "format alpaca are input, instruction, output). Use one of these, or another "
                "data.format."),
      std::string::npos);
  EXPECT_NE(refusal_of(begin + "format = \"alpaca\"\nprompt_column = \"p\"\n"
                               "columns.instruction = \"q\"\n")
                .find("input.toml:5: data.columns has 'instruction', and data.prompt_column is "
                      "given, too (both choose the same column). Remove one."),
            std::string::npos);
}

TEST(DataSettings, NamesOfMessagesBelongToFormatsThatHaveThem) {
  const std::string begin = "[data]\npath = \"d\"\n";
  const DataSettings settings =
      read(begin + "turn_columns = [\"q\", \"a\"]\nmessage_fields = { role = \"who\" }\n" +
           "roles = { user = \"me, you\" }\n");
  EXPECT_EQ(settings.columns.turns, (std::vector<std::string>{"q", "a"}));
  EXPECT_EQ(settings.columns.message_fields.at("role"), "who");
  EXPECT_EQ(settings.columns.roles.at("user"), "me, you");
  EXPECT_NE(refusal_of(begin + "roles = { users = \"me\" }\n").find("Did you mean 'user'?"),
            std::string::npos);
  for (const char* key : {"turn_columns = [\"q\"]", "message_fields = { role = \"who\" }",
                          "roles = { user = \"me\" }"})
    EXPECT_NE(refusal_of(begin + "format = \"alpaca\"\n" + key + "\n")
                  .find("Set data.format to \"chat\", or remove it."),
              std::string::npos)
        << key;
}

TEST(DataSettings, TemplatesAreReadWithTheDeckAndStandForColumns) {
  const std::string begin = "[data]\npath = \"d\"\nformat = \"alpaca\"\n";
  EXPECT_EQ(read(begin + "prompt_template = \"Q: {{ q }}\"\nanswer_column = \"a\"\n")
                .columns.prompt_template,
            "Q: {{ q }}");
  EXPECT_NE(refusal_of(begin + "prompt_template = \"\"\"\nQ: {{ q }\"\"\"\n")
                .find("input.toml:4: data.prompt_template is no template: line 1: "),
            std::string::npos);
  EXPECT_NE(refusal_of(begin + "prompt_template = \"{{ q }}\"\ncolumns.input = \"i\"\n")
                .find("input.toml:4: data.prompt_template is given, and data.columns.input, too "
                      "(the template takes the place of 'input'). Remove one; the template reads "
                      "any column: {{ i }}."),
            std::string::npos);
  EXPECT_NE(
      refusal_of("[data]\npath = \"d\"\nformat = \"text\"\nanswer_template = \"{{ q }}\"\n")
          .find("input.toml:4: data.answer_template is given (no sample of the format text is "
                "written by it). Set data.format to \"completion\" or \"alpaca\", or remove it."),
      std::string::npos);
}

TEST(DataSettings, EveryChoiceOfColumnsMakesOtherTokens) {
  std::vector<std::string> texts = {describe(Columns())};
  for (const char* name : {"a", "b"}) {
    Columns by_key, by_field, by_other_field, prompts, answers;
    by_key.prompt = name;
    by_field.mapped = {{"instruction", name}};
    by_other_field.mapped = {{"input", name}};
    prompts.prompt_template = name;
    answers.answer_template = name;
    for (const Columns& columns : {by_key, by_field, by_other_field, prompts, answers})
      texts.push_back(describe(columns));
  }
  std::ranges::sort(texts);
  EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end());
}

}  // namespace
}  // namespace finetune::data::settings_test
