// SPDX-License-Identifier: Apache-2.0
// What `finetune export` makes besides weights, what it leaves when it is killed, and what memory
// it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "core/hash.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests::publish_test {
namespace {

namespace fs = std::filesystem;

Outcome export_to(const Job& job, const std::string& out, const Words& options = {}) {
  return run_finetune(1, with({"export", "output", out}, options), job.folder());
}

/// In a process of its own, whose memory and end are the point.
Outcome export_alone(const Job& job, const std::string& out, const Words& options,
                     const Words& environment = {}) {
  const Words words = finetune_on(1, with({"export", "output", out}, options));
  return run_program(with(with({"env"}, environment), words), job.folder());
}

/// A job whose only checkpoint holds the weights it began with.
Job begun_job(const std::string& name, const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {"train.max_steps=0", "checkpoint.read_back=false"};
  all.insert(all.end(), settings.begin(), settings.end());
  return Job(name, all);
}

core::Json json_in(const fs::path& path) {
  return core::read_json(path, 1 << 20);
}

TEST(Publish, FolderIsReadyToUpload) {
  const Job job = begun_job("publish");
  core::Json config = json_in(job.model() / "config.json");
  config["eos_token_id"] = 7;
  write_file(job.model() / "config.json", config.dump());
  for (const char* name : {"special_tokens_map.json", "chat_template.jinja", "merges.txt"})
    write_file(job.model() / name, name);
  EXPECT_EQ(job.run(1).exit_code, 0);
  const Outcome outcome = export_to(job, "out", {"--dtype", "bfloat16"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();

  const fs::path out = job.folder() / "out";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(out))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"README.md", "XXH128SUMS", "chat_template.jinja",
                                             "config.json", "generation_config.json", "merges.txt",
                                             "model.safetensors", "special_tokens_map.json",
                                             "tokenizer.json", "tokenizer_config.json"}));
  config["torch_dtype"] = "bfloat16";
  EXPECT_EQ(json_in(out / "config.json"), config);
  EXPECT_EQ(json_in(out / "generation_config.json"),
            (core::Json{{"_from_model_config", true}, {"eos_token_id", 7}}));
  const std::string card = read_file(out / "README.md");
  for (const char* part :
       {"base_model: \"model\"\n", "library_name: transformers\n", "| trained on | data.json |",
        "| optimizer steps | 0 |", "optimizer.lr = "})
    EXPECT_EQ(count(card, part), 1) << part << "\n" << card;
  EXPECT_EQ(count(card, job.folder().string()), 0) << card;
  // A hash for each file, as xxhsum has them.
  std::ifstream sums(out / "XXH128SUMS");
  std::size_t num_sums = 0;
  for (std::string hash, name; sums >> hash >> name; ++num_sums)
    EXPECT_EQ(hash, core::fingerprint(read_file(out / name))) << name;
  EXPECT_EQ(num_sums, names.size() - 1);
}

TEST(Publish, TheCardShowsWhatTheRunMeasured) {
  const Job job("publish.card", {"train.max_steps=2", "checkpoint.save_steps=0",
                                 "data.validation_fraction=0.2", "evaluate.tasks=[\"task.toml\"]"});
  write_file(job.folder() / "task.toml",
             "[task]\nkind = \"perplexity\"\ndata = \"data.json\"\nprompt = \"{{ output }}\"\n");
  const Outcome run = job.run(1);
  ASSERT_EQ(run.exit_code, 0) << run.text();
  const Outcome outcome = export_to(job, "out");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::string card = read_file(job.folder() / "out/README.md");
  for (const char* part : {"## Evaluation", "token_perplexity", "step 2", "](loss.svg)",
                           "| hash of the training tokens | ", "| samples trained on | 16 |"})
    EXPECT_EQ(count(card, part), 1) << part << "\n" << card;
  EXPECT_TRUE(read_file(job.folder() / "out/loss.svg").starts_with("<svg"));
}

TEST(Publish, GenerationConfigOfTheSourceIsKept) {
  const Job job = begun_job("publish.generation");
  write_file(job.model() / "generation_config.json", "{ \"top_k\": 3 }\n");
  EXPECT_EQ(job.run(1).exit_code, 0);
  EXPECT_EQ(export_to(job, "out").exit_code, 0);
  EXPECT_EQ(read_file(job.folder() / "out/generation_config.json"), "{ \"top_k\": 3 }\n");
}

/// A base model with tokens for a chat, and a template that nobody can read.
void make_chat_model(const Job& job) {
  fs::copy_file(source_folder() / "tests/golden/tokenizers/qwen2/tokenizer.json",
                job.model() / "tokenizer.json", fs::copy_options::overwrite_existing);
  write_file(job.model() / "tokenizer_config.json",
             R"({"eos_token": "<|endoftext|>", "chat_template": "{% another %}", "a": 1})");
}

std::int64_t id_of(const Job& job, const std::string& token) {
  const core::Json tokenizer = json_in(job.model() / "tokenizer.json");
  for (const core::Json& each : tokenizer.at("added_tokens")) {
    if (each.at("content") == token) return each.at("id").get<std::int64_t>();
  }
  return -1;
}

TEST(Publish, TheTemplateOfTheRunGoesWithTheModel) {
  const Job job = begun_job("publish.template", {"data.template=chatml"});
  make_chat_model(job);
  const Outcome run = job.run(1);
  ASSERT_EQ(run.exit_code, 0) << run.text();
  const auto generate = [&](const std::string& folder) {
    return run_finetune(1, {"generate", folder, "Hi", "--chat", "--max-tokens", "1"}, job.folder());
  };
  const Outcome unknown = generate("model");
  EXPECT_EQ(unknown.exit_code, 65) << unknown.text();
  EXPECT_EQ(count(unknown.err, "name it in --template"), 1) << unknown.err;
  EXPECT_EQ(count(unknown.err, "data.template"), 0) << unknown.err;

  ASSERT_EQ(export_to(job, "out").exit_code, 0);
  const fs::path out = job.folder() / "out";
  const std::string jinja = read_file(out / "chat_template.jinja");
  EXPECT_EQ(count(jinja, "'<|im_start|>' + message.role"), 1) << jinja;
  EXPECT_EQ(count(jinja, "{%- generation"), 0) << jinja;
  EXPECT_EQ(json_in(out / "tokenizer_config.json"),
            (core::Json{{"eos_token", "<|endoftext|>"}, {"chat_template", jinja}, {"a", 1}}));
  EXPECT_EQ(json_in(out / "generation_config.json").at("eos_token_id").back(),
            id_of(job, "<|im_end|>"));
  const Outcome generated = generate("out");
  EXPECT_EQ(generated.exit_code, 0) << generated.text();
}

TEST(Publish, NamesForTheTemplateAreItsDefaults) {
  const Job job = begun_job("publish.kwargs",
                            {"data.template=model", "data.template_kwargs={ mood = \"calm\" }"});
  make_chat_model(job);
  const std::string own =
      "{% for m in messages %}{{ mood }}{{ m.content }}{{ eos_token }}{% endfor %}";
  write_file(job.model() / "tokenizer_config.json",
             core::Json{{"eos_token", "<|endoftext|>"},
                        {"chat_template",
                         {{{"name", "default"}, {"template", own}},
                          {{"name", "tool_use"}, {"template", "{{ tools }}" + own}},
                          {{"name", "../rag"}, {"template", own}}}}}
                 .dump());
  const Outcome run = job.run(1);
  ASSERT_EQ(run.exit_code, 0) << run.text();
  ASSERT_EQ(export_to(job, "out").exit_code, 0);
  const fs::path out = job.folder() / "out";
  const std::string defaults = "{% if mood is not defined %}{% set mood = \"calm\" %}{% endif %}\n";
  EXPECT_EQ(read_file(out / "chat_template.jinja"), defaults + own);
  EXPECT_EQ(read_file(out / "additional_chat_templates/tool_use.jinja"),
            defaults + "{{ tools }}" + own);
  EXPECT_FALSE(fs::exists(out / "rag.jinja"));
  EXPECT_EQ(json_in(out / "tokenizer_config.json").at("chat_template").at(2).at("template"),
            defaults + own);
}

TEST(Publish, NamesThatNoTemplateReadsChangeNothing) {
  const Job job = begun_job("publish.no_kwargs",
                            {"data.template=model", "data.template_kwargs={ mood = \"calm\" }"});
  make_chat_model(job);
  write_file(job.model() / "tokenizer_config.json",
             R"({"eos_token": "<|endoftext|>", "chat_template":)"
             R"( "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"})");
  const Outcome run = job.run(1);
  ASSERT_EQ(run.exit_code, 0) << run.text();
  ASSERT_EQ(export_to(job, "out").exit_code, 0);
  EXPECT_FALSE(fs::exists(job.folder() / "out/chat_template.jinja"));
  EXPECT_EQ(read_file(job.folder() / "out/tokenizer_config.json"),
            read_file(job.model() / "tokenizer_config.json"));
}

TEST(Publish, TheTemplateIsTheOneThatTransformersApplies) {
  const Job job = begun_job("publish.transformers", {"data.template=chatml"});
  if (run_program({"python3", "-c", "import transformers, jinja2"}, job.folder()).exit_code != 0)
    GTEST_SKIP() << "no Python with transformers and jinja2 here";
  make_chat_model(job);
  ASSERT_EQ(job.run(1).exit_code, 0);
  ASSERT_EQ(export_to(job, "out").exit_code, 0);
  const Outcome outcome = run_program(
      {"python3", "-c",
       "from transformers import PreTrainedTokenizerFast as T\n"
       "print(T.from_pretrained('out').apply_chat_template([{'role': 'user', 'content': 'Hi'}],"
       " add_generation_prompt=True, tokenize=False), end='')"},
      job.folder());
  EXPECT_EQ(outcome.out, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n") << outcome.err;
}

TEST(Publish, AKilledOrFailedExportLeavesNoFolderOfThatName) {
  const Job job = begun_job("publish.killed");
  EXPECT_EQ(job.run(1).exit_code, 0);
  // The model has more than five tensors.
  EXPECT_EQ(export_alone(job, "out", {}, {"FINETUNE_FAULT=export.piece:0:5:kill"}).exit_code, 137);
  EXPECT_FALSE(fs::exists(job.folder() / "out"));
  EXPECT_EQ(export_alone(job, "out", {}, {"FINETUNE_FAULT=export.piece:0:5:enospc"}).exit_code, 74);
  EXPECT_FALSE(fs::exists(job.folder() / "out"));
  EXPECT_EQ(export_to(job, "out").exit_code, 0);
  EXPECT_NO_THROW(weights::ModelFiles::open(job.folder() / "out"));
  // A second one into the same folder is refused and changes nothing.
  const std::string before = read_file(job.folder() / "out/model.safetensors");
  EXPECT_EQ(export_to(job, "out", {"--dtype", "float16"}).exit_code, 73);
  EXPECT_EQ(read_file(job.folder() / "out/model.safetensors"), before);
}

TEST(Publish, BestNeedsAValidationLoss) {
  const Job job = begun_job("publish.best");
  EXPECT_EQ(job.run(1).exit_code, 0);
  const Outcome outcome = export_to(job, "out", {"--best"});
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_EQ(count(outcome.err, "no good checkpoint there has a validation loss"), 1) << outcome.err;
}

TEST(Publish, BestIsTheLowestValidationLossOfTheRun) {
  const Job job("publish.lowest",
                {"train.max_steps=4", "train.validate_steps=1", "data.validation_fraction=0.2",
                 "checkpoint.save_steps=1", "checkpoint.save_total_limit=4", "train.global_batch=4",
                 "train.micro_batch=2", "optimizer.lr=0.3", "optimizer.schedule=constant"});
  const Outcome run = job.run(1);
  ASSERT_EQ(run.exit_code, 0) << run.text();
  std::map<double, std::string> folders;
  for (const auto& entry : fs::directory_iterator(job.output())) {
    if (!fs::exists(entry.path() / "state.json")) continue;
    const core::Json state = json_in(entry.path() / "state.json");
    folders[state.at("validation_loss").get<double>()] = entry.path().filename().string();
  }
  ASSERT_EQ(folders.size(), 4u);
  const Outcome outcome = export_to(job, "out", {"--best"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "wrote out from output/" + folders.begin()->second), 1)
      << outcome.out;
  EXPECT_EQ(count(read_file(job.folder() / "out/README.md"), "| validation loss | "), 1);
}

TEST(Publish, MemoryDoesNotGrowWithTheModel) {
  const Job small = begun_job("publish.small");
  EXPECT_EQ(small.run(1).exit_code, 0);
  const Job large = begun_job("publish.large", {"model.init=random"});
  core::Json config = json_in(large.model() / "config.json");
  config["hidden_size"] = 768;
  config["intermediate_size"] = 3072;
  config["num_hidden_layers"] = 5;
  write_file(large.model() / "config.json", config.dump());
  fs::remove(large.model() / "model.safetensors");
  const Outcome begun = large.run(1);
  ASSERT_EQ(begun.exit_code, 0) << begun.text();

  const Outcome with_small = export_alone(small, "out", {"--dtype", "float32"});
  const Outcome with_large = export_alone(large, "out", {"--dtype", "float32"});
  ASSERT_EQ(with_small.exit_code, 0) << with_small.text();
  ASSERT_EQ(with_large.exit_code, 0) << with_large.text();
  const auto bytes =
      static_cast<std::int64_t>(fs::file_size(large.folder() / "out/model.safetensors"));
  const std::int64_t growth = with_large.peak_bytes - with_small.peak_bytes;
  EXPECT_GT(bytes, 2 * (64 << 20));
  EXPECT_LT(growth, 64 << 20) << "of a model of " << bytes << " bytes";
  fs::remove_all(large.folder());
}

}  // namespace
}  // namespace finetune::tests::publish_test
