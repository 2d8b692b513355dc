// SPDX-License-Identifier: Apache-2.0
#include "restart/job.hpp"
#include "support/folders.hpp"
#include "support/golden_models.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <sstream>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

const fs::path golden = source_folder() / "tests/golden";

/// Answers of different lengths, so that micro-batches need padding.
std::string instructions() {
  core::Json all = core::Json::array();
  for (int i = 0; i < 23; ++i) {
    std::string answer = "One";
    for (int k = 1; k < 1 + i % 7; ++k)
      answer += ", and then " + std::to_string(k * (i + 3));
    all.push_back({{"instruction", "Count from " + std::to_string(i) + "."},
                   {"input", i % 3 == 0 ? "Slowly." : ""},
                   {"output", answer + "."}});
  }
  return all.dump(1);
}

bool is_time(const std::string& field) {
  return field == "tokens_per_s" || field == "step_s" || field == "tokens_per_s_per_rank" ||
         field == "tflops_per_rank" || field == "mfu" || field == "unix_time_s";
}

/// The bits of every number of `row` by name, times and what tells about them left out.
std::vector<std::pair<std::string, std::uint64_t>> bits_of(const core::Json& row) {
  std::vector<std::pair<std::string, std::uint64_t>> bits;
  for (const auto& item : row.items()) {
    if (!is_time(item.key()) && !item.value().is_object())
      bits.emplace_back(item.key(), std::bit_cast<std::uint64_t>(item.value().get<double>()));
  }
  return bits;
}

}  // namespace

Job::Job(const std::string& name, std::vector<std::string> settings)
    : folder_(empty_folder("jobs/" + name)), settings_(std::move(settings)) {
  fs::create_directories(model());
  fs::copy_file(golden / "models/llama/config.json", model() / "config.json");
  fs::copy_file(golden / "models/llama/model.safetensors", model() / "model.safetensors");
  fs::copy_file(golden / "tokenizers/llama3/tokenizer.json", model() / "tokenizer.json");
  write_file(model() / "tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
  write_file(data(), instructions());
  write_file(folder_ / "job.toml",
             "[model]\npath = \"model\"\n[data]\npath = \"data.json\"\nmax_seq_length = 192\n"
             "[train]\noutput = \"output\"\n");
}

std::vector<std::string> Job::arguments(const std::vector<std::string>& more) const {
  return with(with({"job.toml"}, settings_), more);
}

std::vector<std::string> Job::command(int ranks, const std::vector<std::string>& more) const {
  return finetune_on(ranks, arguments(more));
}

Outcome Job::run(int ranks, const std::vector<std::string>& more) const {
  return run_finetune(ranks, arguments(more), folder_);
}

std::vector<core::Json> Job::metrics() const {
  std::vector<core::Json> rows;
  std::ifstream file(output() / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    core::Json row = core::parse_json(line, "metrics.jsonl");
    // When a save ends is a matter of time; the data report is the first start's.
    if (!row.contains("checkpoint") && !row.contains("resume") && !row.contains("data"))
      rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<core::Json> Job::steps() const {
  std::vector<core::Json> rows = metrics();
  std::erase_if(rows, [](const core::Json& row) { return !row.contains("loss"); });
  return rows;
}

std::string Job::exported() const {
  const fs::path out = folder_ / "exported";
  fs::remove_all(out);
  const Outcome outcome = run_finetune(1, {"export", output().string(), out.string()}, folder_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const fs::path adapter = out / "adapter_model.safetensors";
  return read_file(fs::exists(adapter) ? adapter : out / "model.safetensors");
}

std::string Job::checkpoint_bytes(std::int64_t step) const {
  std::string digits = std::to_string(step);
  digits.insert(0, 10 - digits.size(), '0');
  return read_file(output() / ("step-" + digits) / "node00000.h5");
}

Job family_job(const std::string& family, const std::string& name,
               const std::vector<std::string>& settings) {
  Job job(name, settings);
  fs::remove(job.model() / "model.safetensors");
  write_golden_model(family, job.model());
  return job;
}

std::vector<std::string> short_run(const std::string& precision, int max_steps) {
  return {"precision.mode=" + precision,
          "train.max_steps=" + std::to_string(max_steps),
          "train.global_batch=5",
          "train.micro_batch=2",
          "optimizer.lr=1e-3",
          "optimizer.warmup_steps=3",
          "optimizer.weight_decay=0.1",
          "train.validate_steps=8",
          "data.validation_fraction=0.2",
          "checkpoint.save_steps=6",
          "optimizer.max_grad_norm=0.5"};
}

void expect_same_metrics(const Job& job, const Job& reference) {
  const auto rows = job.metrics();
  const auto expected = reference.metrics();
  EXPECT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < std::min(rows.size(), expected.size()); ++i)
    EXPECT_EQ(bits_of(rows[i]), bits_of(expected[i])) << rows[i] << " and " << expected[i];
}

bool kill_after(const Job& job, int ranks, int step) {
  Process process(job.command(ranks), job.folder());
  const std::string sign = "{\"step\": " + std::to_string(step) + ", \"loss\"";
  bool is_reached = false;
  while (!is_reached && process.read_for(1)) {
    std::ostringstream metrics;
    metrics << std::ifstream(job.output() / "metrics.jsonl").rdbuf();
    is_reached = count(metrics.str(), sign) > 0;
  }
  process.kill();
  return process.wait(run_limit).exit_code != 0;
}

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace finetune::tests
