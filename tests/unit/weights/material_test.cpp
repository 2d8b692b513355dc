// SPDX-License-Identifier: Apache-2.0
// Files that other programs wrote, where they are at hand.
#include <gtest/gtest.h>

#include "support/material.hpp"
#include "unit/weights/support.hpp"

namespace finetune::weights::material_test {
namespace {

namespace fs = std::filesystem;

TEST(Material, ReadsTheFilesOfSwiftTransformers) {
  const fs::path folder = tests::material("conformance/swift-transformers");
  REQUIRE_MATERIAL(folder);
  const auto ints = ModelFiles::open(folder / "tensor-1d-int32.safetensors");
  EXPECT_EQ(read_all<std::int32_t>(ints, "embedding", core::DType::i32),
            (std::vector<std::int32_t>{1, 2, 3}));
  const auto doubles = ModelFiles::open(folder / "tensor-2d-float64.safetensors");
  EXPECT_EQ(read_all<double>(doubles, "embedding", core::DType::f64),
            (std::vector<double>{1, 2, 3, 24, 25, 26}));
  const auto cube = ModelFiles::open(folder / "tensor-3d-float32.safetensors");
  EXPECT_EQ(cube.entry("embedding").shape, (std::vector<std::int64_t>{2, 2, 3}));
  EXPECT_EQ(read_all<float>(cube, "embedding", core::DType::f32),
            (std::vector<float>{22, 23, 24, 11, 12, 13, 2, 3, 4, 1, 2, 3}));
  const auto four = ModelFiles::open(folder / "tensor-4d-float32.safetensors");
  EXPECT_EQ(four.entry("embedding").shape, (std::vector<std::int64_t>{2, 3, 1, 3}));
  EXPECT_EQ(read_all<float>(four, "embedding", core::DType::f32),
            (std::vector<float>{11, 12, 13, 1, 2, 3, 4, 5, 6, 22, 23, 24, 15, 16, 17, 17, 18, 19}));
}

TEST(Material, StoriesModelSurvivesImportAndExport) {
  const fs::path folder = tests::material("weights/stories260K-hf");
  REQUIRE_MATERIAL(folder);
  expect_round_trip(folder, 5'000'000'000);
  expect_round_trip(folder, 200'000);
}

TEST(Material, ModelOfTwoFilesSurvivesImportAndExport) {
  const fs::path folder = tests::material("../reference/models/mistral");
  REQUIRE_MATERIAL(folder);
  const ModelFiles files = ModelFiles::open(folder);
  EXPECT_EQ(files.files().size(), 2u);
  EXPECT_EQ(files.size_bytes(), 558336);  // as its index says
  EXPECT_EQ(files.entry("model.layers.1.mlp.down_proj.weight").shape,
            (std::vector<std::int64_t>{64, 96}));
  expect_round_trip(folder, 300'000);
}

}  // namespace
}  // namespace finetune::weights::material_test
