// SPDX-License-Identifier: Apache-2.0
// A restart that would not continue the run it finds is refused, and leaves that run as it was.
#include <gtest/gtest.h>

#include "restart/job.hpp"
#include "support/messages.hpp"

namespace finetune::tests::refusal_test {
namespace {

namespace fs = std::filesystem;

/// A job with a checkpoint after `steps` of 20 steps.
Job stopped_job(const std::string& name, int steps = 2) {
  Job job(name, short_run("32-true"));
  const Outcome outcome = job.run(1, {"train.stop_after_steps=" + std::to_string(steps)});
  EXPECT_EQ(outcome.exit_code, 75) << outcome.text();
  return job;
}

void expect_refused(const Outcome& outcome, const std::vector<std::string>& messages) {
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.err;
  for (const std::string& message : messages)
    EXPECT_EQ(count(outcome.err, message), 1) << message << "\n" << outcome.err;
}

class Refusal : public testing::TestWithParam<int> {
 protected:
  static std::string name(const std::string& test) {
    return "refusal." + test + ".r" + std::to_string(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Refusal, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(Refusal, OfAChangedKeyNamesBothValues) {
  const Job job = stopped_job(name("key"));
  const std::string resolved = read_file(job.output() / "input.resolved.toml");
  Job changed = job;
  expect_refused(
      changed.run(GetParam(), {"train.seed=7", "optimizer.beta2=0.999"}),
      {"error: job.toml: 2 keys are not what the run in output/step-0000000002 has (its training "
       "so far depends on them). Restore them, or set another train.output to begin a new run.\n",
       "    train.seed = 7, the checkpoint has 42\n",
       "    optimizer.beta2 = 0.999, the checkpoint has 0.95\n"});
  EXPECT_EQ(read_file(job.output() / "input.resolved.toml"), resolved);
}

TEST_P(Refusal, OfChangedDataNamesThem) {
  const Job job = stopped_job(name("data"));
  std::string data = read_file(job.data());
  data.replace(data.find("Count"), 5, "Climb");
  write_file(job.data(), data);
  expect_refused(job.run(GetParam()),
                 {"error: data.json: is not what the run in output/step-0000000002 was trained on "
                  "(the data position of the checkpoint means nothing in other data). Restore the "
                  "data, set data.allow_changed = true to continue with them as they are, or set "
                  "another train.output to begin a new run.\n"});
  const Outcome allowed = job.run(GetParam(), {"data.allow_changed=true"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.text();
  EXPECT_EQ(count(allowed.err, "warning: data.json is not what the run in"), 1) << allowed.err;
}

/// A template whose answers train what `answer` writes.
std::string chat_template(const std::string& answer) {
  return "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}" + answer +
         "{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
         "{% if add_generation_prompt %}assistant: {% endif %}";
}

/// The message that begins so, behind warnings of too small batches.
std::string said_from(const Outcome& outcome, const std::string& begin) {
  const auto at = outcome.err.find(begin);
  return at == std::string::npos ? outcome.err : said_in(outcome.err.substr(at));
}

TEST_P(Refusal, OfOtherMasksOfTheSameTokensShowsAConversationBothWays) {
  const Job job(name("masks"), short_run("32-true"));
  core::Json data = core::Json::array();
  for (int i = 0; i < 23; ++i) {
    core::Json messages = core::Json::array();
    for (const char* number : {"one", "two"}) {
      messages.push_back({{"role", "user"}, {"content", "Say " + std::string(number)}});
      messages.push_back({{"role", "assistant"}, {"content", number + std::to_string(i)}});
    }
    data.push_back({{"messages", messages}});
  }
  write_file(job.data(), data.dump());
  const fs::path jinja = job.model() / "chat_template.jinja";
  write_file(jinja, chat_template("{{ m.content }}{{ eos_token }}"));
  const Outcome begun = job.run(1, {"train.stop_after_steps=2"});
  ASSERT_EQ(begun.exit_code, 75) << begun.text();
  expect_line_about(begun.out, {"<|end_of_text|> 46 of 46"});
  expect_line_about(begun.out, {"1 of 23", "data.json:1: entry 1", "model/chat_template.jinja"});

  // Another template, whose tokens and masks are the same.
  write_file(jinja, "{# later #}" + chat_template("{{ m.content }}{{ eos_token }}"));
  const Outcome same = job.run(GetParam(), {"train.stop_after_steps=1"});
  EXPECT_EQ(same.exit_code, 75) << same.text();

  write_file(jinja,
             chat_template("{% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}"));
  const Outcome refused = job.run(GetParam());
  EXPECT_EQ(refused.exit_code, 78);
  expect_message(said_from(refused, "error: data.json"), "error: data.json",
                 {"output/step-0000000003", "data.allow_changed", "23 of 23",
                  "data.json:1: entry 1", "+ one0", "+ one0<|end_of_text|>"});
  expect_line_about(refused.out, {"46 of 46", "none ends with <|end_of_text|>"});
  // Where nobody knows what the run was trained on, what is read now is shown.
  const Outcome alone = job.run(GetParam(), {"data.cache=false"});
  EXPECT_EQ(alone.exit_code, 78);
  expect_message(said_from(alone, "error: data.json"), "error: data.json",
                 {"data.allow_changed", "data.json:1: entry 1", "+ one0"});
  EXPECT_EQ(count(alone.err, "<|end_of_text|>"), 2) << "once for each answer: " << alone.err;

  const Outcome allowed = job.run(GetParam(), {"data.allow_changed=true"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.text();
  expect_message(said_from(allowed, "warning: data.json"), "warning: data.json",
                 {"output/step-0000000003", "data.allow_changed", "+ one0<|end_of_text|>"});
}

TEST_P(Refusal, OfAnotherModelNamesATensor) {
  const Job job = stopped_job(name("model"));
  core::Json config = core::parse_json(read_file(job.model() / "config.json"), "config.json");
  config["vocab_size"] = 500;
  write_file(job.model() / "config.json", config.dump());
  expect_refused(
      job.run(GetParam()),
      {"error: output/step-0000000002: master model.embed_tokens.weight is F32 [512, 64] (this run "
       "needs F32 [500, 64]). Continue with the model and precision that the checkpoint was "
       "written "
       "with"});
}

TEST_P(Refusal, OfADamagedCheckpointGoesOnFromTheOneBefore) {
  const Job job(name("damaged"), short_run("32-true"));
  EXPECT_EQ(job.run(1, {"train.stop_after_steps=10"}).exit_code, 75);
  const fs::path file = job.output() / "step-0000000010/node00000.h5";
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file(file, bytes);

  const Outcome outcome = job.run(GetParam());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err, "warning: step-0000000010 is skipped: output/step-0000000010"), 1)
      << outcome.err;
  EXPECT_EQ(count(outcome.out, "continues from output/step-0000000006 (step 6 of 20)"), 1)
      << outcome.out;
  EXPECT_EQ(job.steps().size(), 20u);
}

}  // namespace
}  // namespace finetune::tests::refusal_test
