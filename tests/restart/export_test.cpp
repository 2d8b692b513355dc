// SPDX-License-Identifier: Apache-2.0
// Weights in, no step, weights out: the same bytes. And `finetune verify` on what lies between.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <tuple>

#include "core/dtype.hpp"
#include "restart/job.hpp"
#include "weights/model_files.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::tests::export_test {
namespace {

namespace fs = std::filesystem;
using core::DType;

/// dtypes of matrices and of norms.
struct Dtypes {
  std::string name;
  DType matrix;
  DType norm;
};

const Dtypes all_dtypes[] = {{"F32", DType::f32, DType::f32},
                             {"BF16", DType::bf16, DType::bf16},
                             {"F16", DType::f16, DType::f16},
                             {"BF16NormsF32", DType::bf16, DType::f32}};

struct Tensor {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  bool operator==(const Tensor&) const = default;
};

std::vector<std::byte> read_as(const weights::ModelFiles& files, const std::string& name,
                               DType dtype) {
  const auto& shape = files.entry(name).shape;
  const core::TensorSlice all{name, shape, dtype, 0, core::num_elements(shape)};
  std::vector<std::byte> bytes(static_cast<std::size_t>(all.size_bytes()));
  files.read(all, bytes);
  return bytes;
}

/// The tensors of a model folder as they lie in its files.
std::map<std::string, Tensor> read_folder(const fs::path& folder) {
  const auto files = weights::ModelFiles::open(folder);
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : files.names()) {
    const auto& entry = files.entry(name);
    tensors[name] = {entry.dtype, entry.shape, read_as(files, name, entry.dtype)};
  }
  return tensors;
}

void write_tensors(const fs::path& path,
                   const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<weights::TensorSpec> specs;
  for (const auto& [name, tensor] : tensors)
    specs.push_back({name, tensor.dtype, tensor.shape});
  weights::SafetensorsWriter writer(path, specs);
  for (const auto& [name, tensor] : tensors)
    writer.write(name, tensor.bytes);
  writer.finish();
}

/// Values that careless conversions lose: -0, the smallest subnormals, the largest numbers.
void plant_extremes(Tensor& tensor) {
  const std::vector<std::uint32_t> values =
      tensor.dtype == DType::f32
          ? std::vector<std::uint32_t>{0x80000000, 0x00000001, 0x807FFFFF, 0x7F7FFFFF}
      : tensor.dtype == DType::bf16 ? std::vector<std::uint32_t>{0x8000, 0x0001, 0x807F, 0x7F7F}
                                    : std::vector<std::uint32_t>{0x8000, 0x0001, 0x83FF, 0x7BFF};
  const auto size = static_cast<std::size_t>(core::size_bytes(tensor.dtype));
  for (std::size_t i = 0; i < values.size(); ++i)
    std::memcpy(tensor.bytes.data() + i * size, &values[i], size);
}

/// Writes the model of `job` anew with other dtypes, in one file or in two with an index.
void convert_model(const Job& job, const Dtypes& dtypes, bool is_sharded) {
  const auto files = weights::ModelFiles::open(job.model());
  std::vector<std::pair<std::string, Tensor>> parts[2];
  core::Json weight_map = core::Json::object();
  for (const std::string& name : files.names()) {
    const auto& entry = files.entry(name);
    Tensor tensor{entry.shape.size() == 1 ? dtypes.norm : dtypes.matrix, entry.shape, {}};
    tensor.bytes = read_as(files, name, tensor.dtype);
    plant_extremes(tensor);
    const int part = is_sharded && name.starts_with("model.layers.1.") ? 1 : 0;
    parts[part].emplace_back(name, std::move(tensor));
    weight_map[name] = part == 0 ? "first.safetensors" : "second.safetensors";
  }
  fs::remove(job.model() / "model.safetensors");
  if (!is_sharded) return write_tensors(job.model() / "model.safetensors", parts[0]);
  write_tensors(job.model() / "first.safetensors", parts[0]);
  write_tensors(job.model() / "second.safetensors", parts[1]);
  write_file(job.model() / "model.safetensors.index.json",
             core::Json{{"metadata", core::Json::object()}, {"weight_map", weight_map}}.dump());
}

class Untouched : public testing::TestWithParam<std::tuple<Dtypes, bool>> {};

TEST_P(Untouched, ModelIsExportedByteForByte) {
  const auto& [dtypes, is_sharded] = GetParam();
  const std::string name = "untouched." + dtypes.name + (is_sharded ? ".sharded" : "");
  const Job job(name, {"train.max_steps=0"});
  convert_model(job, dtypes, is_sharded);
  const auto before = read_folder(job.model());

  const Outcome outcome = job.run(is_sharded ? 3 : 1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const fs::path out = job.folder() / "exported";
  std::vector<std::string> words = {"export", job.output().string(), out.string()};
  if (is_sharded) words.insert(words.end(), {"--max-shard-size", "100KB"});
  const Outcome exported = run_finetune(1, words, job.folder());
  EXPECT_EQ(exported.exit_code, 0) << exported.text();

  EXPECT_EQ(fs::exists(out / "model.safetensors.index.json"), is_sharded);
  EXPECT_TRUE(read_folder(out) == before);
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(read_file(out / file), read_file(job.model() / file));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Untouched,
                         testing::Combine(testing::ValuesIn(all_dtypes), testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) ? "Sharded" : "Single");
                         });

Outcome verify(const Job& job) {
  return run_finetune(1, {"verify", "output"}, job.folder());
}

TEST(Verify, PassesGoodCheckpointsAndNamesFileAndTensorOfAFlippedBit) {
  const Job job("verify", {"train.max_steps=2", "checkpoint.save_steps=1"});
  EXPECT_EQ(job.run(2).exit_code, 0);
  const Outcome good = verify(job);
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(count(good.out, "output: good: 2 checkpoints"), 1) << good.out;

  // A byte in the middle of a known tensor: its position is what the manifest says.
  const fs::path folder = job.output() / "step-0000000001";
  const core::Json manifest = core::parse_json(read_file(folder / "MANIFEST.json"), "manifest");
  const auto tensors = manifest.at("tensors");
  std::int64_t position = -1;
  for (const core::Json& slice : manifest.at("slices")) {
    const core::Json& box = manifest.at("boxes").at(slice.at(0).get<std::size_t>());
    const core::Json& tensor = tensors.at(box.at(0).get<std::size_t>());
    if (tensor.at(0) == "exp_avg" && tensor.at(1) == "lm_head.weight")
      position = slice.at(4).get<std::int64_t>() + 2 * slice.at(3).get<std::int64_t>();
  }
  ASSERT_GE(position, 0);
  std::string bytes = read_file(folder / "node00000.h5");
  bytes[static_cast<std::size_t>(position)] ^= 1;
  write_file(folder / "node00000.h5", bytes);

  const Outcome bad = verify(job);
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_EQ(count(bad.err, "error: output/step-0000000001/node00000.h5"), 1) << bad.err;
  EXPECT_EQ(count(bad.err, "exp_avg lm_head.weight"), 1) << bad.err;
  EXPECT_EQ(count(bad.err, "error: "), 1) << bad.err;
}

}  // namespace
}  // namespace finetune::tests::export_test
