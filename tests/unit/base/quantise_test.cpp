// SPDX-License-Identifier: Apache-2.0
// Weights that are no numbers are refused by name wherever they would be quantised.
#include "base/detail/quantise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "adapters/lora/settings.hpp"
#include "adapters/qlora/qlora.hpp"
#include "base/detail/base_weights.hpp"
#include "base/detail/frozen_weights.hpp"
#include "comm/agree.hpp"
#include "plan/layout/bucket.hpp"
#include "support/tiny_model.hpp"

namespace finetune::base::quantise_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// A value of a tensor that is 0.5 everywhere else.
struct Spoilt {
  float value = 0.5f;
  std::int64_t element = 0;

  void read(std::int64_t first, std::span<float> target) const {
    std::ranges::fill(target, 0.5f);
    if (element >= first && element < first + std::ssize(target))
      target[static_cast<std::size_t>(element - first)] = value;
  }
};

template <typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    return error.what();
  }
  return "";
}

model::ParameterTable quantised_table(const model::Architecture& architecture) {
  model::ParameterTable table = tests::tiny_family().describe(architecture);
  model::AdapterSettings settings;
  settings.of<adapters::lora::Settings>().r = 2;
  adapters::qlora::adapter().rewrite(settings, "test", table);
  return plan::regroup(table, plan::Bucket::block);
}

/// What load_frozen says of a model with this value in its last packed row.
std::string message_of_run(const Spoilt& spoilt) {
  tests::ShardedTable of(quantised_table(tests::tiny_architecture(tests::TinyKind::own_head)),
                         shard::one_copy(tests::world()), tests::TinyModel::in_fp32());
  const model::ParameterTable& table = of.table;
  int last = -1;
  for (int i = 0; i < static_cast<int>(table.rows.size()); ++i)
    if (!table.row(i).packing.is_dense()) last = i;
  const WeightSource source = {[&](int row, std::int64_t first, std::span<float> target) {
    (row == last ? spoilt : Spoilt{}).read(first, target);
  }};
  const std::string message = message_of([&] { load_frozen(source, of.shards); });
  EXPECT_TRUE(message.empty() || message.find(table.row(last).name) != std::string::npos)
      << message;
  return message;
}

std::string message_of_export(const Spoilt& spoilt) {
  const model::Parameter row{.name = "w", .shape = {3, 70}};
  return message_of([&] {
    quantise(row, [&](std::int64_t first, std::span<float> values) { spoilt.read(first, values); });
  });
}

TEST(Quantise, TakesFiniteNumbersOnly) {
  EXPECT_EQ(message_of_export({}), "");
  EXPECT_TRUE(message_of_export({nan, 0}).starts_with("w: element [0, 0] is nan ("));
  EXPECT_TRUE(message_of_export({nan, 209}).starts_with("w: element [2, 69] is nan ("));
  EXPECT_TRUE(message_of_export({-infinity, 71}).starts_with("w: element [1, 1] is -inf ("));
}

TEST(LoadFrozen, TakesFiniteNumbersOnlyWhateverRankReadsThem) {
  EXPECT_EQ(message_of_run({}), "");
  // down_proj is [8, 6].
  EXPECT_NE(message_of_run({nan, 7}).find("element [1, 1] is nan"), std::string::npos);
  EXPECT_NE(message_of_run({infinity, 47}).find("element [7, 5] is inf"), std::string::npos);
}

}  // namespace
}  // namespace finetune::base::quantise_test
