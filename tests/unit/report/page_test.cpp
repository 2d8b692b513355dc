// SPDX-License-Identifier: Apache-2.0
// The page, and the table of numbers, of planted folders.
#include "report/page.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "metrics/start_file.hpp"
#include "report/pictures.hpp"
#include "support/xml.hpp"
#include "unit/report/filled_folder.hpp"

namespace finetune::report {
namespace {

class Page : public tests::FilledFolder {
 protected:
  std::string text_of_page() {
    return page({read_reported(folder(), 1.79e9 + 200)}, 1.79e9 + 200, plot::Spacing::linear);
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Page, OfEverythingIsWellFormedAndHasAllParts) {
  fill();
  const std::string text = text_of_page();
  EXPECT_EQ(tests::markup_problem(text), "");
  for (const char* part : {">Loss<",
                           ">Exact match",
                           ">Tasks<",
                           "arc/accuracy",
                           "0.5 ± 0.12",
                           ">Learning rate<",
                           ">Gradient norm",
                           ">Tokens per second<",
                           ">Model FLOPs",
                           "Where the time of a step goes",
                           "over ranks",
                           ">Memory",
                           ">Starts<",
                           ">Checkpoints<",
                           ">Warnings and errors<",
                           ">Sample answers<",
                           ">Data<",
                           ">Deck<",
                           "1,234",
                           "before&amp;",
                           "after\nline",
                           "75 %",
                           "4.00 MiB",
                           "class=\"restart"})
    EXPECT_TRUE(has(text, part)) << part;
}

TEST_F(Page, NeedsNothingFromElsewhereAndRunsNoScript) {
  fill();
  const std::string text = text_of_page();
  for (const char* part : {"<script", "<i>q", "<b>training", "<deck>", "<w>", "\x1b", "<link",
                           "@import", "src=", "href="})
    EXPECT_FALSE(has(text, part)) << part;
  // The name space of SVG is no address that a browser opens.
  std::string rest = text;
  const std::string space = "xmlns=\"http://www.w3.org/2000/svg\"";
  for (std::size_t at = rest.find(space); at != rest.npos; at = rest.find(space))
    rest.erase(at, space.size());
  EXPECT_FALSE(has(rest, "http"));
}

TEST_F(Page, OfAFolderThatHasBarelyBegunIsWellFormed) {
  metrics::append_start(folder(), {.unix_time_s = 1.79e9, .num_steps = 20});
  const std::string text = text_of_page();
  EXPECT_EQ(tests::markup_problem(text), "");
  EXPECT_FALSE(has(text, ">Curves<"));
}

TEST_F(Page, OfTwoRunsLaysThemOverEachOtherAndComparesTheirDecks) {
  fill();
  const auto other = folder() / "other";
  std::filesystem::create_directory(other);
  std::filesystem::copy_file(folder() / "metrics.jsonl", other / "metrics.jsonl");
  std::ofstream(other / "input.resolved.toml") << "[train]\nseed = 2\noutput = \"<deck>\"\n";
  const std::string text =
      page({read_reported(folder(), 0), read_reported(other, 0)}, 0, plot::Spacing::logarithmic);
  EXPECT_EQ(tests::markup_problem(text), "");
  EXPECT_TRUE(has(text, "curve s1"));
  EXPECT_TRUE(has(text, "train.seed"));
  EXPECT_FALSE(has(text, "train.output")) << "both have the same";
}

TEST_F(Page, IsWrittenIntoTheFolder) {
  fill();
  write_page(folder(), 1.79e9 + 200);
  std::ifstream file(folder() / "report.html");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str().starts_with("<!doctype html>"));
}

TEST_F(Page, HasAPictureForEachName) {
  fill();
  const RunHistory runs[] = {read_run(folder())};
  for (const std::string& name : picture_names()) {
    const auto found = pictures(name, runs);
    ASSERT_EQ(found.size(), name == "tasks" ? 2u : 1u) << name;
    for (const Picture& picture : found)
      EXPECT_EQ(tests::markup_problem(to_svg_file(picture)), "") << name;
  }
}

TEST_F(Page, NamesSlowDevicesAndSince) {
  fill();
  const std::string text = text_of_page();
  EXPECT_NE(text.find("its clocks are lowered: heat"), std::string::npos);
  EXPECT_NE(text.find("10 to 20"), std::string::npos);
}

TEST_F(Page, MeansOfTimesAreThoseOfTheRows) {
  fill();
  const auto means = mean_times(read_run(folder()).times);
  ASSERT_EQ(means.size(), 5u);
  EXPECT_EQ(means[0].first, "compute");
  EXPECT_DOUBLE_EQ(means[0].second.max, 3);
  EXPECT_DOUBLE_EQ(means[1].second.median, 1);
}

TEST_F(Page, OfARunOfManyStepsStaysSmall) {
  fill();
  std::string rows;
  for (std::int64_t step = 30; step < 10'000; ++step) {
    metrics::StepRecord row{.step = step, .loss = 1.0 / static_cast<double>(step), .step_s = 0.1};
    row.times.emplace();
    row.times->num_steps = 1;
    row.times->parts[0] = {1, 2, 3};
    rows += metrics::to_json(row) + "\n";
  }
  add("metrics.jsonl", rows);
  EXPECT_LT(text_of_page().size(), 300'000u);
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');)
    cells.push_back(cell);
  return cells;
}

TEST_F(Page, AsATableHasTheNumbersOfTheRowsToTheLastBit) {
  fill();
  const std::filesystem::path folders[] = {folder()};
  std::stringstream table(csv(folders));
  std::string line;
  std::getline(table, line);
  const auto columns = cells_of(line);
  const auto column = [&](const std::string& name) {
    return static_cast<std::size_t>(std::ranges::find(columns, name) - columns.begin());
  };
  ASSERT_LT(column("times.compute_s.max"), columns.size()) << line;
  std::size_t compared = 0;
  for_each_row(folder(), [&](const core::Json& row) {
    if (!row.contains("loss") && !row.contains("validation_loss") && !row.contains("evaluation"))
      return;
    ASSERT_TRUE(std::getline(table, line));
    const auto cells = cells_of(line);
    const auto compare = [&](const std::string& name, const core::Json& value) {
      ASSERT_LT(column(name), cells.size()) << name << ": " << line;
      EXPECT_EQ(std::stod(cells[column(name)]), value.get<double>()) << name;
      ++compared;
    };
    for (const auto& [name, value] : row.items())
      if (value.is_number()) compare(name, value);
    if (row.contains("evaluation")) compare("arc/accuracy", row["evaluation"][0]["value"]);
  });
  EXPECT_EQ(compared, 20 * 8 + 3 + 3 + 2 * 2u);
  EXPECT_FALSE(std::getline(table, line));
}

}  // namespace
}  // namespace finetune::report
