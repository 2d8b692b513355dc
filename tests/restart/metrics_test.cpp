// SPDX-License-Identifier: Apache-2.0
// What a run writes for scripts: metrics.jsonl and the resolved deck.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/text.hpp"
#include "optim/schedule.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"
#include "support/record_document.hpp"

namespace finetune::tests::metrics_test {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

/// The names of a row in the order in which they stand there.
std::vector<std::string> names_in(const std::string& line) {
  static const std::regex name(R"re("([a-z_]+)": )re");
  std::vector<std::string> names;
  for (std::sregex_iterator i(line.begin(), line.end(), name), end; i != end; ++i)
    names.push_back((*i)[1]);
  return names;
}

class MetricsFile : public testing::Test {
 protected:
  // One run for all tests.
  static void SetUpTestSuite() {
    job_ = new Job("metrics", short_run("32-true"));
    const Outcome outcome = job_->run(2);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  }
  static void TearDownTestSuite() { delete job_; }

  static Job* job_;
};
Job* MetricsFile::job_ = nullptr;

TEST_F(MetricsFile, RowsHaveTheNamesThatScriptsRelyOn) {
  const std::vector<std::string> step = {"step",
                                         "loss",
                                         "grad_norm",
                                         "lr",
                                         "tokens",
                                         "tokens_per_s",
                                         "step_s",
                                         "padding",
                                         "epoch",
                                         "total_samples",
                                         "total_tokens",
                                         "tokens_per_s_per_rank",
                                         "tflops_per_rank",
                                         "unix_time_s"};
  const std::vector<std::string> validation = {"step", "validation_loss", "exact_match"};
  const std::vector<std::string> checkpoint = {"step",      "checkpoint", "level",       "bytes",
                                               "blocked_s", "write_s",    "read_back_s", "total_s"};
  int num_steps = 0;
  int num_validations = 0;
  int num_checkpoints = 0;
  for (const std::string& line : lines_of(job_->output() / "metrics.jsonl")) {
    if (line.find("\"checkpoint\"") != std::string::npos) {
      EXPECT_EQ(names_in(line), checkpoint) << line;
      ++num_checkpoints;
      continue;
    }
    if (line.starts_with("{\"data\":")) continue;
    const bool is_step = line.find("\"loss\"") != std::string::npos;
    // Every tenth step also tells where the time went.
    const std::size_t times = line.find(", \"times\": {");
    EXPECT_EQ(names_in(line.substr(0, times)), is_step ? step : validation) << line;
    if (is_step) {
      EXPECT_EQ(times != line.npos, (num_steps + 1) % 10 == 0) << line;
    }
    ++(is_step ? num_steps : num_validations);
  }
  EXPECT_EQ(num_steps, 20);
  EXPECT_EQ(num_checkpoints, 4);  // after 6, 12, 18 and 20 steps
  EXPECT_EQ(num_validations, 4);  // before, after 8 and 16 steps, at the end
}

TEST_F(MetricsFile, HasRatesOfLinksWhereRanksSendEachOtherMuch) {
  for (const core::Json& row : job_->steps())
    EXPECT_FALSE(row.contains("links")) << "its blocks are too small";
  const Job large("metrics_links",
                  {"model.path=" + (source_folder() / "inputs/quickstart/model").string(),
                   "parallel.sharding=FULL_SHARD", "precision.mode=32-true", "train.max_steps=3",
                   "train.global_batch=4", "train.micro_batch=2", "metrics.log_steps=1",
                   "checkpoint.save_steps=0"});
  const Outcome outcome = large.run(2);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const auto rows = large.steps();
  ASSERT_EQ(rows.size(), 3u);
  for (const core::Json& row : rows) {
    ASSERT_TRUE(row.contains("links")) << row;
    const core::Json& links = row.at("links");
    const core::Json& rate = links.at("bytes_per_s").at("fsdp");
    ASSERT_EQ(rate.size(), 3u) << row;
    // A collective of 1 MiB or more took no longer than its step; of one group the least is the
    // most.
    EXPECT_GE(rate[0].get<double>() * row.at("step_s").get<double>(), 1 << 20) << row;
    EXPECT_EQ(rate[0], rate[2]) << row;
    EXPECT_FALSE(links.at("slowest_nodes").at("fsdp").get<std::string>().empty());
    EXPECT_FALSE(links.contains("slow"));
  }
  const std::string page = read_file(large.output() / "report.html");
  EXPECT_NE(page.find("Links by axis, GB/s per rank"), page.npos);
}

TEST_F(MetricsFile, NumbersReadBackToTheSameBits) {
  static const std::regex field(R"re("([a-z_]+)": ([^,}]+))re");
  int num_reals = 0;
  for (const std::string& line : lines_of(job_->output() / "metrics.jsonl")) {
    const core::Json row = core::parse_json(line, "metrics.jsonl");
    if (row.contains("checkpoint") || row.contains("data")) continue;
    const std::string top = line.substr(0, line.find(", \"times\": {"));
    for (std::sregex_iterator i(top.begin(), top.end(), field), end; i != end; ++i) {
      const core::Json& value = row.at((*i)[1]);
      if (!value.is_number_float()) continue;
      EXPECT_EQ(core::round_trip(value.get<double>()), (*i)[2]) << line;
      ++num_reals;
    }
  }
  EXPECT_GE(num_reals, 20 * 4);
}

TEST_F(MetricsFile, HoldsTheLearningRatesOfTheSchedule) {
  optim::OptimizerSettings settings;
  settings.lr = 1e-3;
  settings.warmup_steps = 3;
  const optim::Schedule schedule(settings, 20);
  const auto rows = job_->steps();
  ASSERT_EQ(rows.size(), 20u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("step"), i + 1);
    EXPECT_EQ(rows[i].at("lr").get<double>(), schedule.lr(static_cast<std::int64_t>(i)));
  }
}

TEST_F(MetricsFile, HasNoFieldThatItsDocumentDoesNotName) {
  std::set<std::string> seen;
  for (const char* file : {"metrics.jsonl", "starts.jsonl"}) {
    for (const std::string& line : lines_of(job_->output() / file)) {
      const core::Json row = core::parse_json(line, file);
      for (const char* kind : {"loss", "validation_loss", "checkpoint", "data", "start", "end"}) {
        if (!row.contains(kind)) continue;
        seen.insert(kind);
        Fields known = documented_fields(kind);
        FieldNames found = fields_of(row);
        for (const std::string& name : known.always)
          EXPECT_EQ(found.erase(name), 1u) << kind << " lacks " << name;
        for (const std::string& name : found)
          EXPECT_TRUE(known.where_known.contains(name)) << kind << " has " << name;
        break;
      }
    }
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST_F(MetricsFile, IsReadByThePythonOfItsDocument) {
  if (run_program({"env", "python3", "-c", "pass"}, job_->folder()).exit_code != 0)
    GTEST_SKIP() << "no python3 here";
  const std::string document = read_file(source_folder() / "inputs/README.md");
  const std::string fence = "```python\n";
  const std::size_t begin = document.find(fence) + fence.size();
  const std::string code = document.substr(begin, document.find("```", begin) - begin);
  EXPECT_LE(std::ranges::count(code, '\n') - count(code, "\n\n"), 10);
  write_file(job_->folder() / "reader.py", code);
  // As a kill leaves it.
  const std::string whole = read_file(job_->output() / "metrics.jsonl");
  write_file(job_->folder() / "cut.jsonl", whole + "{\"step\": 21, \"lo");
  const Outcome outcome = run_program({"env", "python3", "reader.py", "cut.jsonl"}, job_->folder());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  std::stringstream out(outcome.out);
  for (const core::Json& row : job_->steps()) {
    std::int64_t step = 0;
    double loss = 0, rate = 0;
    std::string mfu;
    ASSERT_TRUE(out >> step >> loss >> rate >> mfu) << outcome.out;
    EXPECT_EQ(step, row.at("step"));
    EXPECT_EQ(loss, row.at("loss"));
    EXPECT_EQ(rate, row.at("tokens_per_s"));
    EXPECT_EQ(mfu, "None");
  }
  std::string more;
  EXPECT_FALSE(out >> more) << more;
}

TEST_F(MetricsFile, ResolvedDeckStartsTheSameRun) {
  Job again("metrics.again", {});
  std::filesystem::copy_file(job_->output() / "input.resolved.toml", again.folder() / "job.toml",
                             std::filesystem::copy_options::overwrite_existing);
  const Outcome outcome = again.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  expect_same_metrics(again, *job_);
}

/// Of every step, by layer; they add up to the norm of the whole gradient.
std::vector<core::Json> norms_of(const Job& job) {
  std::vector<core::Json> all;
  for (const core::Json& row : job.steps()) {
    double squares = 0;
    for (const core::Json& norms : row.at("norms"))
      squares += std::pow(norms.at("gradient").get<double>(), 2);
    const double whole = row.at("grad_norm");
    EXPECT_NEAR(std::sqrt(squares), whole, 1e-9 * whole) << row;
    all.push_back(row.at("norms"));
  }
  return all;
}

/// Three steps on two ranks have the norms of one rank, but for what sums round.
void expect_norms_of_one_rank(const std::string& family, const Words& mesh, const Words& more) {
  const Words settings =
      with(with(short_run("32-true", 3), more), {"metrics.norms_steps=1", "train.global_batch=4"});
  const std::string name = "metrics.norms." + family;
  const Job alone = family_job(family, name + ".1", settings);
  const Job shared = family_job(family, name + ".2", settings);
  const Outcome first = alone.run(1), second = shared.run(2, mesh);
  ASSERT_EQ(first.exit_code, 0) << first.text();
  ASSERT_EQ(second.exit_code, 0) << second.text();
  const auto expected = norms_of(alone), found = norms_of(shared);
  ASSERT_EQ(found.size(), 3u);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected.at(i).size());
    for (const auto& [layer, norms] : expected[i].items())
      for (const char* kind : {"weight", "gradient"}) {
        const double wanted = norms.at(kind);
        EXPECT_NEAR(found[i].at(layer).at(kind).get<double>(), wanted, 1e-4 * wanted)
            << kind << " of " << layer << " in step " << i + 1;
      }
  }
}

TEST(Norms, OfLayersAreThoseOfOneRankWhereRanksShareMatrices) {
  expect_norms_of_one_rank("llama", {"parallel.tp=2"}, {});
}

TEST(Norms, OfLayersAreThoseOfOneRankWhereRanksShareExperts) {
  expect_norms_of_one_rank("qwen3_moe", {"parallel.ep=2"}, {});
}

TEST(Norms, OfLayersAreThoseOfOneRankWhereRanksHaveCopies) {
  expect_norms_of_one_rank("mistral", {"parallel.sharding=NO_SHARD"}, {});
}

TEST(Norms, OfAnAdapterAreOfTheLayersThatItTrains) {
  const Words lora = {"adapter.name=lora", "adapter.lora_r=4"};
  expect_norms_of_one_rank("qwen2", {"parallel.sharding=FULL_SHARD"}, lora);
}

}  // namespace
}  // namespace finetune::tests::metrics_test
