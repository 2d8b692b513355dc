// SPDX-License-Identifier: Apache-2.0
#include "schedule/pass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(MakePass, UpdatesAUnitWhileTheNextGradientLeaves) {
  const std::string text = text_of(make_pass(plain(), {.updates_in_backward = true}));
  EXPECT_TRUE(text.ends_with(
      "loss 3, reduce_last 3, close 3, release 3, "
      "gather 1, open_gradient 2, backward 2, reduce_last 2, close 2, release 2, "
      "update 3, publish 3, "
      "open 1, open_gradient 1, backward 1, reduce_last 1, close 1, release 1, "
      "update 2, publish 2, "
      "open_gradient 0, backward 0, reduce_last 0, update 1, publish 1, update 0, publish 0"))
      << text;
  EXPECT_EQ(text_of(make_step(plain(), {.updates_in_backward = true}).update),
            "gather 0, gather 1");
}

TEST(MakePass, LeavesWhatTheNextPassBeginsWith) {
  const std::string text = text_of(make_pass(plain(), {}, Pass::more_follow));
  EXPECT_TRUE(
      text.ends_with("open 1, open_gradient 1, backward 1, reduce 1, close 1, "
                     "gather 0, open_gradient 0, backward 0, reduce 0"))
      << text;
  // The optimizer changes what is trained.
  const Stages adapted({{0}, {1, 4}, {2, 4}, {3}}, {{.is_trained = false},
                                                    {.is_trained = false},
                                                    {.is_trained = false},
                                                    {.is_trained = false},
                                                    {.stays_gathered = true}});
  EXPECT_TRUE(text_of(make_pass(adapted, {}))
                  .ends_with("open 1, backward 1, reduce_last 4, close 1, gather 0, backward 0, "
                             "close 4"))
      << text_of(make_pass(adapted, {}));
  EXPECT_EQ(text_of(make_end(adapted, {})), "finish 0, release 4");
  EXPECT_EQ(text_of(make_end(adapted, {.keeps_gathered = true})),
            "finish 0, release 2, release 3, release 4");
}

TEST(MakePass, RecomputesBlocksBeforeTheirBackward) {
  EXPECT_EQ(text_of(make_pass(plain(), {.prefetch_depth = 0, .blocks = Blocks::recomputed},
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
  EXPECT_EQ(text_of(make_pass(plain(), {.prefetch_depth = 0, .blocks = {.num_recomputed = 1}},
                              Pass::more_follow)),
            "open 0, forward 0, close 0, release 0, "
            "open 1, forward 1, close 1, release 1, "
            "open 2, forward_kept 2, "
            "open 3, open_gradient 3, loss 3, reduce 3, close 3, release 3, "
            "open_gradient 2, backward 2, reduce 2, close 2, release 2, "
            "open 1, open_gradient 1, again 1, backward 1, reduce 1, close 1, release 1, "
            "open_gradient 0, backward 0, reduce 0");
}

/// Embedding, so many blocks and the head, without units: what is left is what is computed and
/// moved.
Stages bare(int num_blocks) {
  return {std::vector<std::vector<int>>(static_cast<std::size_t>(num_blocks) + 2), {}};
}

TEST(MakePass, OffloadsOneBlockWhileOthersCompute) {
  EXPECT_EQ(text_of(make_pass(bare(4), {.blocks = {.num_offloaded = 2}})),
            "forward 0, forward_kept 1, offload 1, forward_kept 2, forward_kept 3, drop 1, "
            "offload 3, forward_kept 4, drop 3, loss 5, "
            "bring_back 3, backward 4, bring_back 1, backward 3, backward 2, backward 1, "
            "backward 0");
}

TEST(MakePass, BringsTheLastBlockBackAtOnce) {
  EXPECT_EQ(text_of(make_pass(bare(2), {.blocks = {.num_offloaded = 2}})),
            "forward 0, forward_kept 1, offload 1, forward_kept 2, drop 1, offload 2, drop 2, "
            "loss 3, bring_back 2, bring_back 1, backward 2, backward 1, backward 0");
}

TEST(MakePass, OffloadsInputsWhereAllBlocksAreRecomputed) {
  EXPECT_EQ(text_of(make_pass(bare(2), {.blocks = {Blocks::recomputed.num_recomputed, 1}})),
            "forward 0, forward 1, offload 1, forward 2, drop 1, loss 3, "
            "bring_back 1, again 2, backward 2, again 1, backward 1, backward 0");
}

TEST(OffloadedBlocks, AreSoManyOfThoseThatKeepActivationsEvenlySpread) {
  for (const int num_blocks : {1, 5, 32, 80}) {
    for (const int recomputed : {0, 1, num_blocks / 2, num_blocks}) {
      const int first = recomputed < num_blocks ? recomputed : 0;
      for (int offloaded = 0; offloaded <= num_blocks + 1; ++offloaded) {
        const Blocks blocks{recomputed, offloaded};
        int num = 0, last = -1, longest = 0;
        for (int i = 0; i < num_blocks; ++i) {
          if (!blocks.is_offloaded(i, num_blocks)) continue;
          EXPECT_GE(i, first);
          if (num++ > 0) longest = std::max(longest, i - last);
          last = i;
        }
        const int those = num_blocks - first;
        EXPECT_EQ(num, std::min(offloaded, those));
        if (num > 1) {
          EXPECT_LE(longest, (those + num - 1) / num);
        }
        if (num > 0 && num <= those / 2) {
          EXPECT_LT(last, num_blocks - 1) << "nothing would run behind its copies";
        }
      }
    }
  }
}

/// In forward one leaves while one is computed, in backward one returns while one is read.
TEST(MakePass, HasTwoOffloadedBlocksOnTheDeviceAtMost) {
  for (const int recomputed : {0, 2, 7}) {
    for (int offloaded = 1; offloaded <= 7; ++offloaded) {
      std::set<int> there, away;
      for (const Event& event : make_pass(
               bare(7), {.blocks = {.num_recomputed = recomputed, .num_offloaded = offloaded}})) {
        SCOPED_TRACE(to_string(event));
        const int i = event.index;
        if (event.action == offload) {
          EXPECT_TRUE(there.insert(i).second);
        } else if (event.action == drop) {
          EXPECT_EQ(there.erase(i), 1);
          EXPECT_TRUE(away.insert(i).second);
        } else if (event.action == bring_back) {
          EXPECT_EQ(away.erase(i), 1);
          EXPECT_TRUE(there.insert(i).second);
        } else if (event.action == loss) {
          EXPECT_TRUE(there.empty());
          EXPECT_EQ(std::ssize(away), std::min(offloaded, recomputed < 7 ? 7 - recomputed : 7));
        } else if (event.action == backward || event.action == again) {
          EXPECT_FALSE(away.contains(i));
          if (event.action == backward) there.erase(i);
        }
        EXPECT_LE(there.size(), 2);
      }
      EXPECT_TRUE(there.empty());
      EXPECT_TRUE(away.empty());
    }
  }
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

TEST(MakeUpdate, GathersWhatTheNextPassBeginsWithOnceItIsNew) {
  EXPECT_EQ(first_units(plain(), {}), (std::vector<int>{0, 1}));
  EXPECT_EQ(first_units(plain(), {.prefetch_depth = 0}), std::vector<int>{});
  EXPECT_EQ(first_units({{{0}, {1, 2}, {3, 2}, {4, 0}}, std::vector<Unit>(5)}, {}),
            (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(text_of(make_update({0, 1, 2, 3}, {}, {1, 0})),
            "update 0, publish 0, gather 0, update 1, publish 1, gather 1, update 2, publish 2, "
            "update 3, publish 3");
  EXPECT_EQ(text_of(make_update({4}, {}, {4, 0, 1})),
            "gather 0, gather 1, update 4, publish 4, gather 4");
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
    const bool is_for_next =
        std::ranges::count(first_units(stages, rules), unit) > 0 && !stages.unit(unit).is_trained;
    const bool stays = rules.keeps_gathered || stages.unit(unit).stays_gathered;
    EXPECT_EQ(gathered.contains(unit), stays || is_for_next) << "unit " << unit;
  }
}

/// Once each, when its gradient has left for the sums and nobody has its weights.
TEST_P(EveryOrder, UpdatesInBackwardWhatNobodyReadsAnyMore) {
  const auto& [stages, given] = GetParam();
  Rules rules = given;
  rules.updates_in_backward = true;
  std::set<int> is_open, gathered, reduced, updated;
  for (int step = 0; step < 2; ++step) {
    updated.clear();
    reduced.clear();
    std::vector<Event> events = make_pass(stages, rules);
    for (const auto& more : {make_end(stages, rules), make_step(stages, rules).update})
      events.insert(events.end(), more.begin(), more.end());
    for (const Event& event : events) {
      SCOPED_TRACE(to_string(event));
      if (event.action == open) is_open.insert(event.index);
      if (event.action == open || event.action == gather) gathered.insert(event.index);
      if (event.action == close) is_open.erase(event.index);
      if (event.action == release) gathered.erase(event.index);
      if (event.action == reduce_last) reduced.insert(event.index);
      if (event.action != update) continue;
      EXPECT_TRUE(reduced.contains(event.index));
      EXPECT_FALSE(is_open.contains(event.index) || gathered.contains(event.index));
      EXPECT_TRUE(updated.insert(event.index).second);
    }
    EXPECT_EQ(updated, reduced) << "each that is trained";
  }
  EXPECT_EQ(text_of(make_pass(stages, rules, Pass::more_follow)),
            text_of(make_pass(stages, given, Pass::more_follow)));
}

/// Over passes and steps: what the optimizer changes is not gathered then, and from the second pass
/// on the first units are there before a stage waits for them.
TEST_P(EveryOrder, FindsTheFirstUnitsOfAPassGathered) {
  const auto& [stages, rules] = GetParam();
  const std::vector<int> first = first_units(stages, rules);
  std::vector<int> trained;
  for (int unit = 0; unit < stages.num_units(); ++unit)
    if (stages.unit(unit).is_trained) trained.push_back(unit);
  std::set<int> gathered;
  const auto run = [&](const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.action == open || event.action == gather) gathered.insert(event.index);
      if (event.action == release) gathered.erase(event.index);
      if (event.action == update) {
        EXPECT_FALSE(gathered.contains(event.index)) << event.index;
      }
    }
  };
  for (int step = 0; step < 2; ++step) {
    for (const Pass pass : {Pass::more_follow, Pass::more_follow, Pass::last}) {
      run(make_pass(stages, rules, pass));
      if (pass == Pass::last) run(make_end(stages, rules));
      if (pass == Pass::last) run(make_update(trained, rules, first));
      // Of a model without blocks the head is a first stage, and closed before the end.
      const std::vector<int>& of_head = stages.units(stages.head());
      for (const int unit : first) {
        const bool is_late = stages.head() == 1 && std::ranges::count(of_head, unit) > 0;
        EXPECT_TRUE(is_late || gathered.contains(unit)) << unit;
      }
    }
    for (const int unit : gathered)
      EXPECT_EQ(std::ranges::count(first, unit), 1) << "nothing else outlives a step";
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
    for (const int prefetch_depth : {0, 1, 2, 5})
      for (const Blocks blocks : {Blocks::kept, Blocks::recomputed, Blocks{.num_offloaded = 1}})
        all.push_back({keeps, prefetch_depth, blocks});
  return all;
}

INSTANTIATE_TEST_SUITE_P(MakePass, EveryOrder,
                         testing::Combine(testing::ValuesIn(all_stages()),
                                          testing::ValuesIn(all_rules())));

}  // namespace
}  // namespace finetune::schedule::pass_test
