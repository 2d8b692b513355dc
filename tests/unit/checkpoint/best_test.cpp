// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/best.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/errors.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::best_test {
namespace {

void save_with(const std::filesystem::path& root, std::int64_t step, const core::Json& state) {
  const std::vector<float> values(3, 1);
  const std::vector<StoredSlice> slices = {{"master",
                                            {"w", {3}, core::DType::f32, 0, 3},
                                            reinterpret_cast<const std::byte*>(&values[0])}};
  save({}, {}, 0, root, step, state, slices);
}

TEST(OpenBest, TakesTheLowestValidationLossAndTheNewestOfEqualOnes) {
  const tests::SharedFolder folder;
  save_with(folder.path(), 1, {{"validation_loss", 3}});
  save_with(folder.path(), 2, {{"validation_loss", 2.5}});
  save_with(folder.path(), 3, {{"validation_loss", 2.5}});
  save_with(folder.path(), 4, {{"validation_loss", 2.75}});
  save_with(folder.path(), 5, {{"other", 0}});
  save_with(folder.path(), 6, {{"validation_loss", nullptr}});
  EXPECT_EQ(open_best(folder.path()).step, 3);
  std::filesystem::resize_file(folder.path() / "step-0000000003/node00000.h5", 100);
  EXPECT_EQ(open_best(folder.path()).step, 2);
}

TEST(OpenBest, SaysWhyThereIsNone) {
  const tests::SharedFolder folder;
  const auto refusal = [&] {
    return finetune::tests::refusal_of(core::ErrorKind::input, [&] { open_best(folder.path()); });
  };
  EXPECT_NE(refusal().find("there is no checkpoint"), std::string::npos);
  save_with(folder.path(), 5, core::Json::object());
  EXPECT_NE(refusal().find("no good checkpoint there has a validation loss"), std::string::npos);
}

}  // namespace
}  // namespace finetune::checkpoint::best_test
