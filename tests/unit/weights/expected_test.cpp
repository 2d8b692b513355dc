// SPDX-License-Identifier: Apache-2.0
#include "weights/expected.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "unit/weights/support.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::weights::expected_test {
namespace {

/// A folder with these tensors, all zero bytes of U8.
void put_model(const TestFolder& folder, std::vector<TensorSpec> tensors) {
  for (TensorSpec& tensor : tensors)
    tensor.dtype = core::DType::u8;
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (const TensorSpec& tensor : tensors) {
    const std::vector<std::byte> zeros(static_cast<std::size_t>(tensor.size_bytes()));
    writer.write(tensor.name, zeros);
  }
  writer.finish();
}

TEST(Expected, AcceptsWhatConfigDescribes) {
  const TestFolder folder;
  put_model(folder, {{"norm", {}, {3}}, {"layers.0.rotary_emb.inv_freq", {}, {2}}});
  const std::vector<ExpectedTensor> expected = {{"norm", {3}}, {"lm_head", {1}, true}};
  EXPECT_NO_THROW(check(ModelFiles::open(folder.path()), expected, "config.json"));
}

TEST(Expected, ListsAllProblemsAtOnceWithTheNameThatMayBeMeant) {
  const TestFolder folder;
  put_model(folder, {{"layers.0.q_proj.weight", {}, {2, 2}}, {"norm", {}, {3}}, {"extra", {}, {}}});
  const std::vector<ExpectedTensor> expected = {
      {"model.layers.0.q_proj.weight", {2, 2}}, {"norm", {4}}, {"absent", {}}};
  const Thrown thrown =
      thrown_by([&] { check(ModelFiles::open(folder.path()), expected, "m/config.json"); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_EQ(thrown.message,
            folder.path().string() +
                ": of 3 tensors 2 are missing, 1 have the wrong shape, and 2 are unexpected "
                "(m/config.json describes another model). Check that the weights and config.json "
                "belong together."
                "\n  missing: model.layers.0.q_proj.weight [2, 2] (there is "
                "\"layers.0.q_proj.weight\": is it meant?)"
                "\n  missing: absent []"
                "\n  unexpected: \"extra\" []"
                "\n  unexpected: \"layers.0.q_proj.weight\" [2, 2]"
                "\n  wrong shape: norm is [3], should be [4]");
}

TEST(Expected, SaysOfATensorOfAnySizeThatItIs) {
  const TestFolder folder;
  put_model(folder, {{"norm", {}, {1}}});
  const std::vector<ExpectedTensor> expected = {{"norm", {1}}, {"state", {-1}}};
  const Thrown thrown =
      thrown_by([&] { check(ModelFiles::open(folder.path()), expected, "config.json"); });
  EXPECT_TRUE(thrown.says("missing: state of any size")) << thrown.message;
}

TEST(Expected, ListsTenAndCountsTheRest) {
  const TestFolder folder;
  put_model(folder, {{"norm", {}, {1}}});
  std::vector<ExpectedTensor> expected = {{"norm", {1}}};
  for (int i = 0; i < 13; ++i)
    expected.push_back({fmt::format("t{}", i), {}});
  const Thrown thrown =
      thrown_by([&] { check(ModelFiles::open(folder.path()), expected, "config.json"); });
  EXPECT_TRUE(thrown.says("missing: t9 []\n  missing: and 3 more")) << thrown.message;
  EXPECT_FALSE(thrown.says("t10"));
}

}  // namespace
}  // namespace finetune::weights::expected_test
