// SPDX-License-Identifier: Apache-2.0
// Groups that ranks have formed, against the mesh that was planned.
#include <gtest/gtest.h>

#include "comm/agree.hpp"
#include "model/family.hpp"
#include "registry.hpp"
#include "shard/options.hpp"
#include "support/folders.hpp"
#include "support/mesh.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"
#include "train/run/tiling.hpp"

namespace finetune::train::places_test {
namespace {

using tests::world;

plan::Plan plan_of(std::int64_t dp_shard, std::int64_t tp) {
  const model::Identified found =
      model::identify(model::read_config(tests::source_folder() / "tests/golden/models/llama"),
                      "config.json", modules::registry().families);
  plan::PlanInput request;
  request.architecture = found.architecture;
  request.parallel.tp = tp;
  request.parallel.dp_shard = dp_shard;
  request.ranks = {.world_size = dp_shard * tp, .ranks_per_node = dp_shard * tp};
  request.global_batch = dp_shard;
  request.max_seq_length = 8;
  return plan::make(request, found.family->describe(found.architecture));
}

TEST(Places, AreThoseOfThePlannedMesh) {
  const int size = world().size();
  const auto sharded = shard::make_groups(tests::mesh_of(world(), 0), false);
  const auto shared = shard::make_groups(tests::mesh_of(world(), 0, {.tp = size}), false);
  const auto why = [&](const plan::Plan& plan, const shard::Groups& groups) -> std::string {
    try {
      require_places(plan, groups, world());
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::bug);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why(plan_of(size, 1), sharded), "");
  EXPECT_EQ(why(plan_of(1, size), shared), "");
  if (size == 1) return;
  tests::expect_facts(why(plan_of(1, size), sharded), "parallel", {"rank 0", "tp 0 of 1"});
  tests::expect_facts(why(plan_of(size, 1), shared), "parallel", {"rank 0", "shard 0 of 1"});
}

}  // namespace
}  // namespace finetune::train::places_test
