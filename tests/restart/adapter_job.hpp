#pragma once
// SPDX-License-Identifier: Apache-2.0
// Jobs with adapters, and what others make of their folders.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/rope.hpp"
#include "registry.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"
#include "train/infer/loaded_model.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests::adapter_job {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

inline const fs::path golden = source_folder() / "tests/golden";

inline Words settings(const Words& more) {
  Words all = {"precision.mode=32-true",  "train.max_steps=3",       "train.global_batch=4",
               "train.micro_batch=2",     "optimizer.lr=2e-2",       "adapter.name=lora",
               "checkpoint.save_steps=3", "optimizer.warmup_steps=0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline const Words rich = {"adapter.lora_r=4",
                           "adapter.lora_alpha=6",
                           "adapter.use_dora=true",
                           "adapter.use_rslora=true",
                           "adapter.target_modules=[\"q_proj\", \"down_proj\"]",
                           "adapter.modules_to_save=[\"lm_head\", \"embed_tokens\"]"};

/// Other ranks and alphas for some of the matrices that one product reads.
inline const Words patterned = {"adapter.lora_r=4", "adapter.target_modules=[\"all-linear\"]",
                                "adapter.rank_pattern=[\"layers.0.*.q_proj=6\", \"k_proj=2\"]",
                                "adapter.alpha_pattern=[\"(v|gate)_proj=40\"]"};

inline const Words vocabulary = {
    "adapter.target_modules=[\"embed_tokens\", \"lm_head\", \"q_proj\"]",
    "adapter.loraplus_embedding_lr_ratio=0.5"};

/// Of the ranks that patterns give.
inline const Words olora = {"adapter.init=olora", "adapter.lora_r=4", "adapter.use_rslora=true",
                            "adapter.target_modules=[\"q_proj\", \"down_proj\"]",
                            "adapter.rank_pattern=[\"q_proj=6\"]"};

inline Outcome command(const Job& job, const Words& words) {
  return run_finetune(1, words, job.folder());
}

inline void must(const Outcome& outcome) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
}

/// Asked once: to import these takes seconds.
inline bool has_python_with(const std::string& modules) {
  static std::map<std::string, bool> known;
  const auto found = known.find(modules);
  if (found != known.end()) return found->second;
  const Outcome outcome =
      run_program({"env", "python3", "-c", "import " + modules}, fs::temp_directory_path());
  return known[modules] = outcome.exit_code == 0;
}

inline bool has_peft() {
  return has_python_with("torch, transformers, peft, safetensors");
}

inline bool has_bitsandbytes() {
  return has_python_with("bitsandbytes, accelerate, transformers");
}

inline Outcome python(const Job& job, Words words) {
  words.insert(words.begin(),
               {"env", "python3", source_folder() / "tests/restart/check_adapter.py"});
  return run_program(words, job.folder());
}

inline at::Tensor logits_of(const fs::path& folder, const fs::path& adapter = {}) {
  train::LoadedModel loaded(folder, modules::registry(), {}, core::DType::f32, adapter);
  constexpr std::int64_t length = 40;
  const at::Tensor ids = at::arange(length, at::kLong).mul(37).remainder(500);
  return train::logits(loaded.engine(), ids, model::make_sequence(loaded.architecture(), 1, length),
                       train::Positions::all)
      .contiguous();
}

/// Beside the job, as the Python program reads them.
inline void write_logits(const at::Tensor& logits, const Job& job) {
  std::ofstream out(job.folder() / "logits.f32", std::ios::binary);
  out.write(static_cast<const char*>(logits.const_data_ptr()),
            static_cast<std::streamsize>(logits.nbytes()));
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

inline std::vector<float> tensor_in(const fs::path& folder, const std::string& name) {
  const auto files = weights::ModelFiles::open(folder);
  const auto& shape = files.entry(name).shape;
  std::vector<float> values(static_cast<std::size_t>(core::num_elements(shape)));
  files.read({name, shape, core::DType::f32, 0, core::num_elements(shape)},
             std::as_writable_bytes(std::span(values)));
  return values;
}

inline std::string base_hash(const Job& job) {
  for (const auto& entry : fs::directory_iterator(job.output()))
    if (fs::exists(entry.path() / "state.json"))
      return core::read_json(entry.path() / "state.json", 1 << 20)
          .at("base")
          .at("hash")
          .get<std::string>();
  return "";
}

/// A job with an adapter that an earlier run of it wrote.
inline void make_adapter(const Job& job, const Words& more) {
  Words words = {"train.output=first", "train.max_steps=1"};
  words.insert(words.end(), more.begin(), more.end());
  must(job.run(1, words));
  must(command(job, {"export", "first", "adapter"}));
}

inline constexpr const char* changed_matrix = "model.layers.0.self_attn.q_proj.weight";

/// Changes the first row of a matrix in a model's only file.
inline void change_first_row(const fs::path& model, const std::string& name,
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

}  // namespace finetune::tests::adapter_job
