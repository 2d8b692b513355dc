// SPDX-License-Identifier: Apache-2.0
// Adapters out and in: PEFT folders, merged models, quantised bases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "model/rope.hpp"
#include "registry.hpp"
#include "restart/job.hpp"
#include "train/loaded_model.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests::adapter_export_test {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

const fs::path golden = FINETUNE_SOURCE_DIR "/tests/golden";

Words settings(const Words& more) {
  Words all = {"precision.mode=32-true",  "train.max_steps=3",       "train.global_batch=4",
               "train.micro_batch=2",     "optimizer.lr=2e-2",       "adapter.name=lora",
               "checkpoint.save_steps=3", "optimizer.warmup_steps=0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const Words rich = {"adapter.lora_r=4",
                    "adapter.lora_alpha=6",
                    "adapter.use_dora=true",
                    "adapter.use_rslora=true",
                    "adapter.target_modules=[\"q_proj\", \"down_proj\"]",
                    "adapter.modules_to_save=[\"lm_head\", \"embed_tokens\"]"};

/// Other ranks and alphas for some of the matrices that one product reads.
const Words patterned = {"adapter.lora_r=4", "adapter.target_modules=[\"all-linear\"]",
                         "adapter.rank_pattern=[\"layers.0.*.q_proj=6\", \"k_proj=2\"]",
                         "adapter.alpha_pattern=[\"(v|gate)_proj=40\"]"};

Outcome command(const Job& job, const Words& words) {
  return run_program(finetune_on(1, words), job.folder());
}

void must(const Outcome& outcome) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
}

/// Asked once: to import these takes seconds.
bool has_python_with(const std::string& modules) {
  static std::map<std::string, bool> known;
  const auto found = known.find(modules);
  if (found != known.end()) return found->second;
  const Outcome outcome =
      run_program({"env", "python3", "-c", "import " + modules}, fs::temp_directory_path());
  return known[modules] = outcome.exit_code == 0;
}

bool has_peft() {
  return has_python_with("torch, transformers, peft, safetensors");
}

bool has_bitsandbytes() {
  return has_python_with("bitsandbytes, accelerate, transformers");
}

Outcome python(const Job& job, Words words) {
  words.insert(words.begin(),
               {"env", "python3", FINETUNE_SOURCE_DIR "/tests/restart/check_adapter.py"});
  return run_program(words, job.folder());
}

at::Tensor logits_of(const fs::path& folder, const fs::path& adapter = {}) {
  train::LoadedModel loaded(folder, modules::registry(), {}, core::DType::f32, adapter);
  constexpr std::int64_t length = 40;
  const at::Tensor ids = at::arange(length, at::kLong).mul(37).remainder(500);
  return train::logits(loaded.engine(), ids, model::make_sequence(loaded.architecture(), 1, length),
                       train::Positions::all)
      .contiguous();
}

/// Beside the job, as the Python program reads them.
void write_logits(const at::Tensor& logits, const Job& job) {
  std::ofstream out(job.folder() / "logits.f32", std::ios::binary);
  out.write(static_cast<const char*>(logits.const_data_ptr()),
            static_cast<std::streamsize>(logits.nbytes()));
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

std::vector<float> tensor_in(const fs::path& folder, const std::string& name) {
  const auto files = weights::ModelFiles::open(folder);
  const auto& shape = files.entry(name).shape;
  std::vector<float> values(static_cast<std::size_t>(core::num_elements(shape)));
  files.read({name, shape, core::DType::f32, 0, core::num_elements(shape)},
             std::as_writable_bytes(std::span(values)));
  return values;
}

std::string base_hash(const Job& job) {
  for (const auto& entry : fs::directory_iterator(job.output()))
    if (fs::exists(entry.path() / "state.json"))
      return core::read_json(entry.path() / "state.json", 1 << 20)
          .at("base")
          .at("hash")
          .get<std::string>();
  return "";
}

struct Kind {
  std::string name;
  Words more;
};

class AdapterExport : public testing::TestWithParam<Kind> {};

TEST_P(AdapterExport, PeftAndWeAgreeOnAdapterAndMergedModel) {
  const Job job("adapter_export." + GetParam().name, settings(GetParam().more));
  must(job.run(2));
  must(command(job, {"export", "output", "adapter"}));
  const Outcome merged = command(job, {"export", "output", "merged", "--merge"});
  must(merged);
  EXPECT_EQ(count(merged.out, "merged the adapter into"), 1) << merged.out;
  const at::Tensor base = logits_of(job.model());
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_GT(largest_difference(base, adapted), 1e-2);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
  const std::string card = read_file(job.folder() / "adapter/README.md");
  EXPECT_EQ(count(card, "library_name: peft\n"), 1) << card;
  if (!has_peft()) GTEST_SKIP() << "no Python with torch, transformers and peft here";
  write_logits(adapted, job);
  const Outcome loaded = python(job, {"load", "model", "adapter", "logits.f32"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
  const Outcome compared = python(job, {"merge", "model", "adapter", "merged"});
  EXPECT_EQ(compared.exit_code, 0) << compared.text();
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdapterExport,
                         testing::Values(Kind{"plain", {}}, Kind{"rich", rich},
                                         Kind{"patterned", patterned}),
                         [](const auto& info) { return info.param.name; });

/// Tensors that are not adapted go through the merge as the family's files have them: experts one
/// by one or together, biases, norms of queries and keys, a head that is the embeddings.
class AdapterExportOfFamily : public testing::TestWithParam<const char*> {};

TEST_P(AdapterExportOfFamily, MergedModelGivesTheLogitsOfTheAdapter) {
  const std::string family = GetParam();
  for (const std::string kind : {"lora", "qlora"}) {
    const Job job = family_job(family, "adapter_export." + family + "." + kind,
                               settings({"adapter.name=" + kind}));
    must(job.run(2));
    must(command(job, {"export", "output", "adapter"}));
    must(command(job, {"export", "output", "merged", "--merge"}));
    fs::path beside = job.model();
    if (kind == "qlora") {
      must(command(job, {"quantize", "model", "nf4"}));
      beside = job.folder() / "nf4";
    }
    const at::Tensor adapted = logits_of(beside, job.folder() / "adapter");
    EXPECT_GT(largest_difference(logits_of(beside), adapted), 1e-2) << kind;
    EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5) << kind;
    for (const std::string& name : weights::ModelFiles::open(job.model()).names())
      EXPECT_NO_THROW(tensor_in(job.folder() / "merged", name)) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterExportOfFamily,
                         testing::Values("llama_tied", "llama4", "mistral", "qwen2", "qwen3",
                                         "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AdapterPath, WhatPeftBeganIsGoneOnFromAndGivesItsLogits) {
  for (const std::string kind : {"plain", "pattern", "rich"}) {
    const Job job("adapter_path." + kind, settings({"adapter.path=adapter", "train.max_steps=0"}));
    if (!has_peft()) GTEST_SKIP() << "no Python with torch, transformers and peft here";
    must(python(job, {"make", "model", "adapter", kind}));
    const at::Tensor logits = logits_of(job.model(), job.folder() / "adapter");
    write_logits(logits, job);
    const Outcome loaded = python(job, {"load", "model", "adapter", "logits.f32"});
    EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
    // Through a run that takes no step, and out again.
    must(job.run(2));
    must(command(job, {"export", "output", "again"}));
    EXPECT_EQ(largest_difference(logits_of(job.model(), job.folder() / "again"), logits), 0);
  }
}

/// A job with an adapter that an earlier run of it wrote.
void make_adapter(const Job& job, const Words& more) {
  Words words = {"train.output=first", "train.max_steps=1"};
  words.insert(words.end(), more.begin(), more.end());
  must(job.run(1, words));
  must(command(job, {"export", "first", "adapter"}));
}

TEST(AdapterPath, GoesOnFromAnExportWithTheSameWeights) {
  const Job job("adapter_path.own", settings({}));
  make_adapter(job, rich);
  const Outcome outcome = job.run(3, {"adapter.path=adapter", "train.max_steps=0"});
  must(outcome);
  EXPECT_EQ(count(outcome.out, "continues from the adapter adapter"), 1) << outcome.out;
  must(command(job, {"export", "output", "again"}));
  EXPECT_EQ(read_file(job.folder() / "adapter/adapter_model.safetensors"),
            read_file(job.folder() / "again/adapter_model.safetensors"));
}

TEST(AdapterPath, GoesOnWithTheRanksAndAlphasOfItsPatterns) {
  const Job job("adapter_path.patterned", settings({}));
  make_adapter(job, patterned);
  const fs::path file = job.folder() / "adapter";
  const core::Json config = core::read_json(file / "adapter_config.json", 1 << 20);
  EXPECT_EQ(config.at("rank_pattern"),
            core::Json::parse(R"({"k_proj": 2, "layers.0.*.q_proj": 6})"));
  EXPECT_EQ(config.at("alpha_pattern"), core::Json::parse(R"({"(v|gate)_proj": 40.0})"));
  const auto adapter = weights::ModelFiles::open({}, file, "adapter_model.safetensors");
  const auto rank = [&](const std::string& module) {
    return adapter.entry("base_model.model.model.layers." + module + ".lora_A.weight").shape[0];
  };
  EXPECT_EQ(rank("0.self_attn.q_proj"), 6);
  EXPECT_EQ(rank("1.self_attn.q_proj"), 4);
  EXPECT_EQ(rank("1.self_attn.k_proj"), 2);
  must(job.run(2, {"adapter.path=adapter", "train.max_steps=0"}));
  must(command(job, {"export", "output", "again"}));
  EXPECT_EQ(read_file(file / "adapter_model.safetensors"),
            read_file(job.folder() / "again/adapter_model.safetensors"));
  EXPECT_EQ(largest_difference(logits_of(job.model(), file),
                               logits_of(job.model(), job.folder() / "again")),
            0);
}

constexpr const char* changed_matrix = "model.layers.0.self_attn.q_proj.weight";

/// Changes the first row of a matrix in a model's only file.
void change_first_row(const fs::path& model, const std::string& name,
                      const std::function<char(char)>& change) {
  const fs::path path = model / "model.safetensors";
  std::string bytes = read_file(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const core::Json tensor =
      core::parse_json(bytes.substr(sizeof header_bytes, header_bytes), "header").at(name);
  const auto begin = tensor.at("data_offsets").at(0).get<std::size_t>();
  const auto end = tensor.at("data_offsets").at(1).get<std::size_t>();
  const std::size_t row_bytes = (end - begin) / tensor.at("shape").at(0).get<std::size_t>();
  char* const row = bytes.data() + sizeof header_bytes + header_bytes + begin;
  std::transform(row, row + row_bytes, row, change);
  write_file(path, bytes);
}

TEST(AdapterPath, AnAdapterOfAnotherModelIsRefused) {
  const Job job("adapter_path.other", settings({}));
  make_adapter(job, {"precision.mode=bf16-mixed"});  // comparable with what computes in fp32
  const fs::path record = job.folder() / "adapter/finetune_base.json";
  EXPECT_EQ(core::read_json(record, 1 << 20).at("packing"), "none");
  const auto generate = [&] {
    return command(job,
                   {"generate", "model", "Count.", "--adapter", "adapter", "--max-tokens", "1"});
  };
  must(generate());
  const Words from = {"adapter.path=adapter", "train.max_steps=0"};
  change_first_row(job.model(), changed_matrix, [](char byte) { return byte ^ 0x01; });

  const Outcome run = job.run(2, from);
  EXPECT_EQ(run.exit_code, 65) << run.text();
  EXPECT_EQ(
      count(run.err, "error: adapter: is an adapter of another model than the one in model ("), 1)
      << run.text();
  EXPECT_EQ(count(run.err, "error: "), 1) << run.text();
  const Outcome generated = generate();
  EXPECT_EQ(generated.exit_code, 65) << generated.text();
  EXPECT_EQ(count(generated.err, "is an adapter of another model"), 1) << generated.text();

  // PEFT has no hash: a name that is another model's is warned of.
  fs::remove(record);
  must(generate());
  EXPECT_EQ(count(generate().err, "warning: "), 0);
  const fs::path config = job.folder() / "adapter/adapter_config.json";
  core::Json changed = core::read_json(config, 1 << 20);
  changed["base_model_name_or_path"] = "somebody/Other-7B";
  write_file(config, changed.dump());
  const Outcome warned = job.run(2, from);
  must(warned);
  EXPECT_EQ(count(warned.err, "names the base somebody/Other-7B, the model is model"), 1)
      << warned.text();
  changed["base_model_name_or_path"] = "somebody/MODEL";
  write_file(config, changed.dump());
  EXPECT_EQ(count(generate().err, "warning: "), 0);
}

/// A row of zeros has no direction to keep the norm of.
TEST(AdapterExportOfDora, ARowOfZerosIsTrainedAndMerged) {
  const Job job("adapter_export.zero_row", settings({"adapter.use_dora=true"}));
  change_first_row(job.model(), changed_matrix, [](char) { return '\0'; });
  must(job.run(2));
  for (const core::Json& row : job.steps())
    EXPECT_TRUE(row.at("loss").is_number()) << row;
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"export", "output", "merged", "--merge"}));
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_TRUE(at::isfinite(adapted).all().item<bool>());
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
}

TEST(AdapterPath, BadAdaptersEndEveryRankWithOneError) {
  const Job job("adapter_path.bad", settings({"adapter.path=adapter"}));
  Words first = rich;
  first.push_back("adapter.path=\"\"");
  make_adapter(job, first);
  const auto expect = [&](const Words& more, int exit_code, const std::string& text) {
    const Outcome outcome = job.run(2, more);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.text();
    EXPECT_EQ(count(outcome.err, text), 1) << outcome.text();
    EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
  };
  expect({"adapter.lora_r=16"}, 78, "adapter.lora_r = 16, the adapter has 4");
  expect({"adapter.name=none"}, 78, "but adapter.name = \"none\"");
  expect({"adapter.path=gone"}, 65, "gone: no such folder");
  expect({"adapter.path=model"}, 65, "it is a whole model, not an adapter");
  const fs::path config = job.folder() / "adapter/adapter_config.json";
  core::Json changed = core::read_json(config, 1 << 20);
  changed["init_lora_weights"] = "pissa";
  write_file(config, changed.dump());
  expect({}, 65, "init_lora_weights = \"pissa\"");
  changed["init_lora_weights"] = true;
  changed["r"] = 8;
  write_file(config, changed.dump());
  expect({}, 65, "it is an adapter of another model");
  changed["r"] = 4;
  write_file(config, changed.dump());
  // A number that is not finite is seen by the rank alone that keeps it.
  const fs::path tensors = job.folder() / "adapter/adapter_model.safetensors";
  std::string bytes = read_file(tensors);
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\x00\xC0\x7F", 4));
  write_file(tensors, bytes);
  expect({}, 65, "holds nan at ");
  write_file(tensors, bytes.substr(0, bytes.size() / 2));
  expect({}, 65, "adapter_model.safetensors");
  const Outcome plan = command(job, {"plan", "job.toml", "adapter.name=lora", "adapter.path=gone"});
  EXPECT_EQ(plan.exit_code, 65) << plan.text();
}

TEST(AdapterExportOfQlora, MergesIntoWhatItWasTrainedBesideUnlessTold) {
  const Job job("adapter_export.qlora", settings({"adapter.name=qlora"}));
  must(job.run(2));
  const Outcome trained = command(job, {"export", "output", "trained", "--merge"});
  must(trained);
  EXPECT_EQ(count(trained.out, "merged into the quantised ones"), 1) << trained.out;
  const Outcome original =
      command(job, {"export", "output", "original", "--merge", "--merge-into", "original"});
  must(original);
  EXPECT_EQ(count(original.out, "on which it was not trained"), 1) << original.out;
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"quantize", "model", "nf4"}));
  const at::Tensor adapted = logits_of(job.folder() / "nf4", job.folder() / "adapter");
  EXPECT_LT(largest_difference(logits_of(job.folder() / "trained"), adapted), 3e-5);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "original"),
                               logits_of(job.model(), job.folder() / "adapter")),
            3e-5);
  EXPECT_GT(largest_difference(logits_of(job.folder() / "original"), adapted), 1e-2);
}

class Quantize : public testing::TestWithParam<bool> {};

TEST_P(Quantize, ARunFromFourBitFilesIsTheSameRun) {
  const bool nests = GetParam();
  const std::string name = nests ? "double" : "single";
  const Words more = {"adapter.name=qlora",
                      std::string("adapter.double_quant=") + (nests ? "true" : "false")};
  const Job straight("quantize.straight." + name, settings(more));
  must(straight.run(2));
  const Job job("quantize.files." + name, settings(more));
  Words words = {"quantize", "model", "nf4", "--max-shard-size", "100KB"};
  if (!nests) words.push_back("--single");
  must(command(job, words));
  must(job.run(2, {"model.path=nf4"}));
  expect_same_metrics(job, straight);
  EXPECT_EQ(base_hash(job), base_hash(straight));
  EXPECT_FALSE(base_hash(job).empty());
  // The rest is as it was.
  EXPECT_EQ(tensor_in(job.folder() / "nf4", "lm_head.weight"),
            tensor_in(job.model(), "lm_head.weight"));
  EXPECT_EQ(read_file(job.folder() / "nf4/tokenizer.json"),
            read_file(job.model() / "tokenizer.json"));
  EXPECT_EQ(command(job, {"quantize", "nf4", "twice"}).exit_code, 65);
  if (!has_bitsandbytes()) GTEST_SKIP() << "no Python with transformers and bitsandbytes here";
  write_logits(logits_of(job.folder() / "nf4"), job);
  const Outcome loaded = python(job, {"nf4", "model", "nf4", "logits.f32"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
}

INSTANTIATE_TEST_SUITE_P(Maxima, Quantize, testing::Bool(),
                         [](const auto& info) { return info.param ? "Nested" : "Single"; });

TEST(AdapterExportOfWholeRuns, MergeIsRefused) {
  const Job job("adapter_export.whole", {"train.max_steps=0"});
  must(job.run(1));
  const Outcome outcome = command(job, {"export", "output", "out", "--merge"});
  EXPECT_EQ(outcome.exit_code, 64) << outcome.text();
  EXPECT_EQ(count(outcome.err, "has no adapter"), 1) << outcome.err;
}

}  // namespace
}  // namespace finetune::tests::adapter_export_test
