// SPDX-License-Identifier: Apache-2.0
// Whole runs whose ranks share matrices and sequences: they stop and continue on any other mesh,
// and what they save and export is what one rank does.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <set>

#include "modules/adapters/gptq_model.hpp"
#include "restart/job.hpp"

namespace finetune::tests::mesh_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_deck = 78;
constexpr int exit_resubmit = 75;

void expect_success(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
}

Outcome command(const Job& job, const Words& words) {
  return run_finetune(1, words, job.folder());
}

struct Mesh {
  const char* name;
  int ranks;
  Words settings;
};

const std::string shards = "parallel.sharding=FULL_SHARD";
const Mesh one_rank = {"one", 1, {}};
const Mesh dp2_tp2 = {"dp2_tp2", 4, {shards, "parallel.tp=2"}};
const Mesh cp2_tp2 = {"cp2_tp2", 4, {shards, "parallel.tp=2", "parallel.cp=2"}};
const Mesh dp2_cp2 = {"dp2_cp2", 4, {shards, "parallel.cp=2"}};
const Mesh cp4 = {"cp4", 4, {shards, "parallel.cp=4", "parallel.cp_method=RING"}};
const Mesh tp4 = {"tp4", 4, {shards, "parallel.tp=4"}};
const Mesh three = {"three", 3, {shards}};
const Mesh ep2 = {"ep2", 2, {shards, "parallel.ep=2"}};
const Mesh ep2_tp2 = {"ep2_tp2", 4, {shards, "parallel.ep=2", "parallel.tp=2"}};

/// What is trained, beside which weights, and where it goes on every three steps.
struct Kind {
  const char* name;
  Words settings;
  std::vector<Mesh> chain;
  std::string packed = "";  ///< "gptq", or a format of `finetune quantize`

  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

const Words of_adapters = {"adapter.lora_r=4", "optimizer.lr=2e-2"};
const Kind kinds[] = {
    {"Full", {}, {dp2_tp2, cp2_tp2, three, one_rank}},
    {"Lora", with(of_adapters, {"adapter.name=lora"}), {dp2_tp2, cp2_tp2, three, one_rank}},
    {"LoraOnGptq", with(of_adapters, {"adapter.name=lora"}), {tp4, cp2_tp2, three}, "gptq"},
    {"LoraOnFp8", with(of_adapters, {"adapter.name=lora"}), {tp4, cp2_tp2, three}, "fp8"},
    // Ranks of tp would cut the blocks of this model.
    {"Qlora", with(of_adapters, {"adapter.name=qlora"}), {dp2_cp2, cp4, one_rank}}};

/// Makes the job's model one of 4 bits, in act-order, or of 8.
void pack(const Job& job, const std::string& format) {
  const fs::path packed = job.folder() / "packed";
  if (format == "gptq") {
    make_gptq_models(job.model(), packed, job.folder() / "dense",
                     {.group_size = 32, .act_order = true});
  } else {
    const Outcome outcome =
        run_finetune(1, {"quantize", "model", "packed", "--format", format}, job.folder());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  }
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(packed / file, job.model() / file, fs::copy_options::overwrite_existing);
}

constexpr int stretch = 3;

Job job_of(const Kind& kind, const std::string& name) {
  const int num_steps = stretch * static_cast<int>(std::ssize(kind.chain));
  Job job("mesh." + std::string(kind.name) + "." + name,
          with(with(short_run("32-true", num_steps),
                    {"checkpoint.save_steps=3", "checkpoint.save_total_limit=10",
                     "train.validate_steps=3"}),
               kind.settings));
  if (!kind.packed.empty()) pack(job, kind.packed);
  return job;
}

void expect_close(const Job& job, const Job& reference) {
  const auto rows = job.metrics(), expected = reference.metrics();
  ASSERT_EQ(rows.size(), expected.size());
  ASSERT_FALSE(rows.empty());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* field : {"loss", "grad_norm", "validation_loss"}) {
      ASSERT_EQ(rows[i].contains(field), expected[i].contains(field)) << field;
      if (!rows[i].contains(field)) continue;
      const double wanted = expected[i][field].get<double>();
      EXPECT_NEAR(rows[i][field].get<double>(), wanted, 1e-5 * std::abs(wanted))
          << field << " in row " << i;
    }
}

/// What checkpoints say that they were trained beside.
std::set<std::string> base_hashes(const Job& job) {
  std::set<std::string> hashes;
  for (const auto& entry : fs::directory_iterator(job.output())) {
    if (!fs::exists(entry.path() / "state.json")) continue;
    const core::Json state = core::read_json(entry.path() / "state.json", 1 << 20);
    if (state.contains("base") && !state["base"].is_null())
      hashes.insert(state["base"].at("hash").get<std::string>());
  }
  return hashes;
}

std::string answer(const Job& job) {
  job.exported();
  Words words = {"generate", (job.folder() / "exported").string(), "Count from 3.", "--max-tokens",
                 "24"};
  if (fs::exists(job.folder() / "exported/adapter_model.safetensors")) {
    words[1] = job.model().string();
    words.insert(words.end(), {"--adapter", (job.folder() / "exported").string()});
  }
  const Outcome outcome = command(job, words);
  expect_success(outcome);
  return outcome.out;
}

class MovedRun : public testing::TestWithParam<Kind> {};

TEST_P(MovedRun, FollowsOneRankFromMeshToMesh) {
  const Kind& kind = GetParam();
  const Job reference = job_of(kind, "straight"), moved = job_of(kind, "moved");
  expect_success(reference.run(1));
  for (std::size_t i = 0; i < kind.chain.size(); ++i) {
    SCOPED_TRACE(kind.chain[i].name);
    const Outcome outcome =
        moved.run(kind.chain[i].ranks, with(kind.chain[i].settings, {"train.stop_after_steps=3"}));
    EXPECT_EQ(outcome.exit_code, i + 1 == kind.chain.size() ? 0 : exit_resubmit) << outcome.text();
    EXPECT_EQ(count(outcome.out, "continues from output/step-"), i == 0 ? 0 : 1) << outcome.text();
  }
  expect_close(moved, reference);

  const Outcome verified = command(moved, {"verify", "output"});
  expect_success(verified);
  EXPECT_EQ(count(verified.out, "  good"), static_cast<int>(std::ssize(kind.chain)))
      << verified.text();
  EXPECT_EQ(base_hashes(moved).size(), kind.settings.empty() ? 0u : 1u);
  EXPECT_EQ(base_hashes(moved), base_hashes(reference));
  EXPECT_EQ(answer(moved), answer(reference));
}

INSTANTIATE_TEST_SUITE_P(Kinds, MovedRun, testing::ValuesIn(kinds),
                         [](const auto& info) { return info.param.name; });

/// Exports of a run whose learning rate is 0, after its only step: as trained, and merged if that
/// is an adapter.
std::vector<std::string> untrained(const std::string& family, const Mesh& mesh,
                                   const Words& settings) {
  const Words still = {"precision.mode=32-true", "train.max_steps=1", "train.global_batch=4",
                       "train.micro_batch=2",    "optimizer.lr=0",    "optimizer.weight_decay=0.1",
                       "checkpoint.save_steps=1"};
  const Job job =
      family_job(family, "mesh.still." + family + std::to_string(settings.size()) + mesh.name,
                 with(still, settings));
  expect_success(job.run(mesh.ranks, mesh.settings));
  std::vector<std::string> exports = {job.exported()};
  if (settings.empty()) return exports;
  expect_success(command(job, {"export", "output", "merged", "--merge"}));
  exports.push_back(read_file(job.folder() / "merged/model.safetensors"));
  return exports;
}

TEST(UntrainedWeights, AreExportedFromAnyMeshAsFromOneRank) {
  const Words lora = {"adapter.name=lora", "adapter.target_modules=[all-linear]"};
  const struct {
    const char* family;
    Words settings;
    std::vector<Mesh> meshes;
  } runs[] = {{"llama", {}, {dp2_tp2, cp2_tp2, tp4}},
              {"llama", lora, {cp2_tp2, tp4}},
              {"qwen3_moe", {}, {ep2, ep2_tp2}},
              {"qwen3_moe", lora, {ep2_tp2}}};
  for (const auto& [family, settings, meshes] : runs) {
    const auto expected = untrained(family, one_rank, settings);
    for (const Mesh& mesh : meshes)
      EXPECT_TRUE(untrained(family, mesh, settings) == expected) << family << " on " << mesh.name;
  }
}

TEST(SameMesh, GivesTheSameBitsToARunThatStopsAndToOneThatIsKilled) {
  constexpr int num_steps = 24;
  const Words settings = with(short_run("bf16-mixed", num_steps), dp2_tp2.settings);
  const Job straight("mesh.bits.straight", settings), stopped("mesh.bits.stopped", settings);
  expect_success(straight.run(4));
  EXPECT_EQ(stopped.run(4, {"train.stop_after_steps=10"}).exit_code, exit_resubmit);
  expect_success(stopped.run(4));
  // Whoever polls may sleep through the rest of the run: then once more.
  bool is_killed = false;
  for (int attempt = 0; attempt < 5 && !is_killed; ++attempt) {
    const Job killed("mesh.bits.killed", settings);
    is_killed = kill_after(killed, 4, 8) && !fs::exists(killed.output() / "step-0000000024");
    if (!is_killed) continue;
    const Outcome outcome = killed.run(4);
    expect_success(outcome);
    EXPECT_EQ(count(outcome.out, "continues from output/step-"), 1) << outcome.text();
    expect_same_metrics(killed, straight);
    EXPECT_TRUE(killed.exported() == straight.exported());
  }
  EXPECT_TRUE(is_killed) << "the run always ended before it could be killed";
  expect_same_metrics(stopped, straight);
  EXPECT_TRUE(stopped.exported() == straight.exported());
  EXPECT_TRUE(stopped.checkpoint_bytes(num_steps) == straight.checkpoint_bytes(num_steps));
}

TEST(PackedWeights, ThatRanksWouldCutAreRefusedWithWhatWorks) {
  const Job job("mesh.cut", with(short_run("32-true", 2), {"adapter.name=qlora"}));
  const Outcome outcome = job.run(2, {shards, "parallel.tp=2"});
  EXPECT_EQ(outcome.exit_code, exit_deck) << outcome.text();
  EXPECT_EQ(count(outcome.err, "is packed in blocks of 64 numbers, some of which would be cut"), 1)
      << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::mesh_test
