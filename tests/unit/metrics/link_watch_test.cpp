// SPDX-License-Identifier: Apache-2.0
// Links that become slow and recover, on a clock that does as it is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "metrics/links.hpp"

namespace finetune::metrics::link_watch_test {
namespace {

constexpr double gb = 1e9;

GroupRate rate_of(const char* axis, int first_rank, double bytes_per_s, const char* nodes) {
  return {{axis, first_rank, 2, bytes_per_s}, nodes};
}

/// Two groups of one axis, the first as fast as it is told to be; a report every ten seconds.
class Links {
 public:
  LinkReport report(double first_gb_per_s) {
    now_s_ += 10;
    return watch_.look(std::vector<GroupRate>{rate_of("fsdp", 0, first_gb_per_s * gb, "n1, n2"),
                                              rate_of("fsdp", 2, 8 * gb, "n3, n4")},
                       now_s_);
  }
  LinkReport reports(int count, double first_gb_per_s) {
    LinkReport last;
    for (int i = 0; i < count; ++i)
      last = report(first_gb_per_s);
    return last;
  }
  void pause(double seconds) { now_s_ += seconds; }
  /// A report without a collective.
  void silence(double seconds) {
    pause(seconds);
    watch_.look({}, now_s_);
  }

 private:
  LinkWatch watch_;
  double now_s_ = 1000;
};

TEST(LinkWatch, HasLeastAndMedianOfAnAxisAndWhereTheSlowestIs) {
  LinkWatch watch;
  const std::vector<GroupRate> rates = {rate_of("fsdp", 0, 3, "n1"), rate_of("fsdp", 2, 2, "n2"),
                                        rate_of("fsdp", 4, 5, "n3"), rate_of("tp", 0, 9, "n1")};
  const LinkReport report = watch.look(rates, 0);
  ASSERT_EQ(report.axes.size(), 2);
  EXPECT_EQ(report.axes.at("fsdp").bytes_per_s.min, 2);
  EXPECT_EQ(report.axes.at("fsdp").bytes_per_s.median, 3);
  EXPECT_EQ(report.axes.at("fsdp").slowest_nodes, "n2");
  EXPECT_EQ(report.axes.at("tp").bytes_per_s.median, 9);
  EXPECT_TRUE(watch.look({}, 1).is_empty());
}

TEST(LinkWatch, TellsOnceOfALinkThatStaysSlowForAMinute) {
  Links links;
  links.reports(20, 10);
  EXPECT_TRUE(links.reports(5, 4).slow.empty()) << "50 s";
  const LinkReport minute = links.report(4);
  ASSERT_EQ(minute.became_slow.size(), 1);
  EXPECT_EQ(minute.became_slow[0].axis, "fsdp");
  EXPECT_EQ(minute.became_slow[0].nodes, "n1, n2");
  EXPECT_EQ(minute.became_slow[0].bytes_per_s, 4 * gb);
  EXPECT_EQ(minute.became_slow[0].usual_bytes_per_s, 10 * gb);
  const LinkReport later = links.report(3);
  EXPECT_TRUE(later.became_slow.empty());
  ASSERT_EQ(later.slow.size(), 1) << "still is";
  EXPECT_EQ(later.slow[0].bytes_per_s, 3 * gb);
}

TEST(LinkWatch, TellsThatALinkHasRecoveredAndOfItsNextSpell) {
  Links links;
  links.reports(20, 10);
  links.reports(8, 4);
  const LinkReport fast = links.report(9);
  ASSERT_EQ(fast.recovered.size(), 1);
  EXPECT_EQ(fast.recovered[0].nodes, "n1, n2");
  EXPECT_EQ(fast.recovered[0].bytes_per_s, 9 * gb);
  EXPECT_TRUE(fast.slow.empty());
  EXPECT_TRUE(links.report(9).recovered.empty());
  EXPECT_TRUE(links.reports(5, 4).slow.empty()) << "a minute counts anew";
  EXPECT_EQ(links.report(4).became_slow.size(), 1);
}

TEST(LinkWatch, IsSilentAboutShortSpellsAndThoseAboveHalf) {
  Links links;
  links.reports(20, 10);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(links.reports(5, 4).slow.empty());
    EXPECT_TRUE(links.report(10).recovered.empty()) << "nobody was told of it";
  }
  EXPECT_TRUE(links.reports(20, 5.1).slow.empty());
}

TEST(LinkWatch, NeverTakesALinkThatStaysSlowForTheUsual) {
  Links links;
  links.reports(20, 10);
  const LinkReport last = links.reports(static_cast<int>(LinkWatch::most) * 2, 4);
  ASSERT_EQ(last.slow.size(), 1);
  EXPECT_EQ(last.slow[0].usual_bytes_per_s, 10 * gb);
}

TEST(LinkWatch, JudgesNothingBeforeItKnowsWhatIsUsual) {
  Links links;
  links.report(100);
  EXPECT_TRUE(links.reports(40, 10).slow.empty()) << "the first one was no usual one";
  EXPECT_EQ(links.reports(6, 4).became_slow.size(), 1);
}

TEST(LinkWatch, CountsTheWholeTimeOfALongIntervalAndNeverTrustsOneAlone) {
  Links links;
  links.reports(20, 10);
  links.pause(90);
  EXPECT_TRUE(links.report(4).slow.empty()) << "the first after a pause";
  EXPECT_EQ(links.report(4).became_slow.size(), 1);
}

TEST(LinkWatch, DoesNotCountTimeWithoutCollectivesBeforeASpell) {
  Links links;
  links.reports(20, 10);
  links.silence(100);
  EXPECT_TRUE(links.reports(5, 4).slow.empty());
  EXPECT_EQ(links.report(4).became_slow.size(), 1);
}

TEST(LinkWatch, RowsNameWhatIsSlow) {
  Links links;
  links.reports(20, 10);
  const std::string fast = "{" + to_json_field(links.report(10)) + "}";
  EXPECT_FALSE(core::parse_json(fast, "row").at("links").contains("slow"));
  const std::string slow = "{" + to_json_field(links.reports(6, 4)) + "}";
  const core::Json row = core::parse_json(slow, "row").at("links");
  EXPECT_EQ(row.at("bytes_per_s").at("fsdp").at(0), 4 * gb);
  EXPECT_EQ(row.at("slowest_nodes").at("fsdp"), "n1, n2");
  EXPECT_EQ(row.at("slow").at(0).at("nodes"), "n1, n2");
  EXPECT_EQ(row.at("slow").at(0).at("usual_bytes_per_s"), 10 * gb);
}

}  // namespace
}  // namespace finetune::metrics::link_watch_test
