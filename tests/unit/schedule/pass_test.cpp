// SPDX-License-Identifier: Apache-2.0
#include "schedule/pass.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace finetune::schedule::pass_test {
namespace {

using enum Action;

std::string text_of(const std::vector<Event>& events) {
  std::string text;
  for (const Event& event : events)
    text += (text.empty() ? "" : ", ") + to_string(event);
  return text;
}

/// Embedding, two blocks and head with a unit each.
Stages plain() {
  return {{{0}, {1}, {2}, {3}}, std::vector<Unit>(4)};
}

TEST(MakePass, GathersOneStageAheadAndReducesBehind) {
  EXPECT_EQ(text_of(make_pass(plain(), {})),
            "open 0, gather 1, forward 0, close 0, release 0, "
            "open 1, gather 2, forward_kept 1, close 1, release 1, "
            "open 2, gather 3, forward_kept 2, "
            "open 3, open_gradient 3, loss 3, reduce_last 3, close 3, release 3, "
            "gather 1, open_gradient 2, backward 2, reduce_last 2, close 2, release 2, "
            "open 1, open_gradient 1, backward 1, reduce_last 1, close 1, release 1, "
            "open_gradient 0, backward 0, reduce_last 0");
}

TEST(MakePass, RecomputesBlocksBeforeTheirBackward) {
  EXPECT_EQ(text_of(make_pass(plain(), {.prefetches = false, .blocks = Blocks::recomputed},
                              Pass::more_follow)),
            "open 0, forward 0, close 0, release 0, "
            "open 1, forward 1, close 1, release 1, "
            "open 2, forward 2, "
            "open 3, open_gradient 3, loss 3, reduce 3, close 3, release 3, "
            "open_gradient 2, again 2, backward 2, reduce 2, close 2, release 2, "
            "open 1, open_gradient 1, again 1, backward 1, reduce 1, close 1, release 1, "
            "open_gradient 0, backward 0, reduce 0");
}

TEST(MakePass, RecomputesTheFirstBlocksOnly) {
  EXPECT_EQ(text_of(make_pass(plain(), {.prefetches = false, .blocks = {.num_recomputed = 1}},
                              Pass::more_follow)),
            "open 0, forward 0, close 0, release 0, "
            "open 1, forward 1, close 1, release 1, "
            "open 2, forward_kept 2, "
            "open 3, open_gradient 3, loss 3, reduce 3, close 3, release 3, "
            "open_gradient 2, backward 2, reduce 2, close 2, release 2, "
            "open 1, open_gradient 1, again 1, backward 1, reduce 1, close 1, release 1, "
            "open_gradient 0, backward 0, reduce 0");
}

TEST(MakePass, KeepsWhatStaysUntilTheEndOfTheStep) {
  const Rules rules{.keeps_gathered = true};
  for (const Event& event : make_pass(plain(), rules))
    EXPECT_NE(event.action, release);
  EXPECT_EQ(text_of(make_end(plain(), rules)),
            "finish 0, release 0, release 1, release 2, release 3");
  const Stages adapted({{0}, {1, 3}, {2, 3}, {0}}, {{}, {}, {}, {.stays_gathered = true}});
  EXPECT_EQ(text_of(make_end(adapted, {})), "finish 0, release 3");
  EXPECT_EQ(text_of(make_end(adapted, rules)),
            "finish 0, release 0, release 1, release 2, release 3");
}

TEST(MakePass, FrozenUnitsHaveNoGradient) {
  const Stages stages({{0}, {1, 2}, {3}},
                      {{.is_trained = false}, {.is_trained = false}, {}, {.is_trained = false}});
  std::vector<Event> of_gradients;
  for (const Event& event : make_pass(stages, {}))
    if (event.action == open_gradient || event.action == reduce_last) of_gradients.push_back(event);
  EXPECT_EQ(text_of(of_gradients), "open_gradient 2, reduce_last 2");
}

TEST(MakeForward, ReadsEveryStageOnceAndOpensNoGradient) {
  EXPECT_EQ(text_of(make_forward(plain(), {})),
            "open 0, gather 1, forward 0, close 0, release 0, "
            "open 1, gather 2, forward 1, close 1, release 1, "
            "open 2, gather 3, forward 2, close 2, release 2, "
            "open 3, forward 3, close 3, release 3");
}

TEST(MakeUpdate, UpdatesAndPublishesUnitByUnit) {
  EXPECT_EQ(text_of(make_update({1, 4}, {})), "update 1, publish 1, update 4, publish 4");
  EXPECT_EQ(text_of(make_update({}, {.offloads = true})), "");
}

TEST(MakeUpdate, OffloadedFetchesOneUnitAhead) {
  EXPECT_EQ(text_of(make_update({0, 2, 3}, {.offloads = true})),
            "fetch 0, fetch 2, update 0, publish 0, fetch 3, update 2, publish 2, "
            "update 3, publish 3");
  std::size_t on_their_way = 0;
  for (const Event& event : make_update({0, 1, 2, 3, 4}, {.offloads = true})) {
    if (event.action == fetch) ++on_their_way;
    if (event.action == publish) --on_their_way;
    EXPECT_LE(on_their_way, units_on_their_way) << to_string(event);
  }
}

/// Whatever the units and rules: what is read is open, what is opened is closed, each trained unit
/// leaves once and after all its stages.
class EveryOrder : public testing::TestWithParam<std::tuple<Stages, Rules>> {};

TEST_P(EveryOrder, OpensWhatItReadsAndReducesWhatItOpened) {
  const auto& [stages, rules] = GetParam();
  std::set<int> is_open, gradient_is_open, gathered;
  std::map<int, int> num_reduced;
  std::vector<int> backward_left;
  for (const Event& event : make_pass(stages, rules)) {
    SCOPED_TRACE(to_string(event));
    if (is_of_stage(event.action) &&
        !(event.action == backward && event.index == stages.embedding())) {
      for (const int unit : stages.units(event.index))
        EXPECT_TRUE(is_open.contains(unit));
    }
    if (event.action == backward || event.action == loss) {
      for (const int unit : stages.units(event.index))
        EXPECT_EQ(gradient_is_open.contains(unit), stages.unit(unit).is_trained);
    }
    if (event.action == open) {
      EXPECT_TRUE(is_open.insert(event.index).second);
    } else if (event.action == close) {
      EXPECT_EQ(is_open.erase(event.index), 1);
    } else if (event.action == release) {
      EXPECT_FALSE(is_open.contains(event.index));
      EXPECT_EQ(gathered.erase(event.index), 1);
    } else if (event.action == open_gradient) {
      EXPECT_TRUE(gradient_is_open.insert(event.index).second);
    } else if (event.action == reduce_last) {
      EXPECT_EQ(gradient_is_open.erase(event.index), 1);
      ++num_reduced[event.index];
    }
    if (event.action == open || event.action == gather) gathered.insert(event.index);
  }
  EXPECT_TRUE(is_open.empty());
  EXPECT_TRUE(gradient_is_open.empty());
  for (int unit = 0; unit < stages.num_units(); ++unit) {
    EXPECT_EQ(num_reduced[unit], stages.unit(unit).is_trained ? 1 : 0) << "unit " << unit;
    const bool stays = rules.keeps_gathered || stages.unit(unit).stays_gathered;
    EXPECT_EQ(gathered.contains(unit), stays) << "unit " << unit;
  }
}

std::vector<Stages> all_stages() {
  return {plain(),
          {{{0}, {1}}, std::vector<Unit>(2)},
          {{{0}, {1}, {0}}, std::vector<Unit>(2)},
          {{{0}, {0}, {0}, {0}}, std::vector<Unit>(1)},
          {{{0}, {1, 2}, {3, 2}, {4, 0}}, std::vector<Unit>(5)},
          {{{0, 1}, {2, 5}, {3, 5}, {4, 5}, {0, 1}},
           {{false, false},
            {true, false},
            {false, false},
            {false, false},
            {false, false},
            {true, true}}}};
}

std::vector<Rules> all_rules() {
  std::vector<Rules> all;
  for (const bool keeps : {false, true})
    for (const bool prefetches : {false, true})
      for (const Blocks blocks : {Blocks::kept, Blocks::recomputed})
        all.push_back({keeps, prefetches, blocks});
  return all;
}

INSTANTIATE_TEST_SUITE_P(MakePass, EveryOrder,
                         testing::Combine(testing::ValuesIn(all_stages()),
                                          testing::ValuesIn(all_rules())));

}  // namespace
}  // namespace finetune::schedule::pass_test
