// SPDX-License-Identifier: Apache-2.0
// The page in a real browser: on a desk, on a phone, in the dark and on paper. The pictures stay in
// report-screenshots/ of the build folder, to be looked at.
#include <gtest/gtest.h>

#include "core/json.hpp"
#include "report/page.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"
#include "unit/report/filled_folder.hpp"

namespace finetune::report {
namespace {

/// Measures the page in a frame of a width, and writes JSON where --dump-dom shows it.
constexpr const char* measuring = R"js(
function seen(rect) { return rect.width > 0 && rect.height > 0; }
function overlaps(a, b) {
  return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
}
function light(colour) {
  const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.03928 ? x / 12.92 : Math.pow((x + 0.055) / 1.055, 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}
function contrast(a, b) {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
function measure() {
  const view = document.getElementById('page').contentWindow, page = view.document;
  const out = {overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
               smallest: 1e9, overlapping: [], outside: [], contrast: 1e9,
               background: view.getComputedStyle(page.body).backgroundColor, plots: 0};
  for (const svg of page.querySelectorAll('svg.plot')) {
    ++out.plots;
    const frame = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
    const rects = texts.map(text => text.getBoundingClientRect());
    texts.forEach((text, i) => {
      out.smallest = Math.min(out.smallest, rects[i].height);
      out.contrast = Math.min(out.contrast,
        contrast(view.getComputedStyle(text).fill, out.background));
      if (rects[i].left < frame.left - 1 || rects[i].right > frame.right + 1)
        out.outside.push(text.textContent);
      for (let k = 0; k < i; ++k)
        if (seen(rects[i]) && seen(rects[k]) && overlaps(rects[i], rects[k]))
          out.overlapping.push(texts[k].textContent + ' | ' + text.textContent);
    });
  }
  for (const text of page.querySelectorAll('p, dt, dd, th, td, figcaption, summary'))
    out.contrast = Math.min(out.contrast, contrast(view.getComputedStyle(text).color, out.background));
  document.getElementById('out').textContent = JSON.stringify(out);
}
)js";

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (tests::run_program({"env", name, "--version"}, testing::TempDir()).exit_code == 0)
      return name;
  return "";
}

class InABrowser : public tests::FilledFolder {
 protected:
  void SetUp() override {
    tests::FilledFolder::SetUp();
    browser_ = browser();
    if (browser_.empty()) GTEST_SKIP() << "no chromium here (apt-get install chromium)";
    fill();
    const auto other = folder() / "another-run";
    std::filesystem::create_directory(other);
    for (const char* name : {"metrics.jsonl", "starts.jsonl"})
      std::filesystem::copy_file(folder() / name, other / name);
    std::ofstream(other / "input.resolved.toml") << "[train]\nseed = 2\n";
    put("one.html", page({read_reported(folder(), now)}, now, plot::Spacing::linear));
    put("two.html", page({read_reported(folder(), now), read_reported(other, now)}, now,
                         plot::Spacing::linear));
  }

  tests::Outcome browse(std::vector<std::string> words) const {
    std::vector<std::string> all = {"env",
                                    browser_,
                                    "--headless",
                                    "--no-sandbox",
                                    "--disable-gpu",
                                    "--hide-scrollbars",
                                    "--allow-file-access-from-files",
                                    "--user-data-dir=" + (folder() / "profile").string()};
    all.insert(all.end(), words.begin(), words.end());
    return tests::run_program(all, folder());
  }

  std::string framed(const std::string& name, int width) const {
    const std::string file = "framed." + std::to_string(width) + "." + name;
    put(file, "<!doctype html><body style=\"margin:0\"><script>" + std::string(measuring) +
                  "</script><iframe id=\"page\" onload=\"measure()\" src=\"" + name +
                  "\" style=\"border:0;height:6000px;width:" + std::to_string(width) +
                  "px\"></iframe><pre id=\"out\"></pre></body>");
    return "file://" + (folder() / file).string();
  }

  core::Json measured(const std::string& name, int width, bool is_dark) const {
    const tests::Outcome outcome =
        browse({std::string("--blink-settings=preferredColorScheme=") + (is_dark ? "0" : "1"),
                "--dump-dom", framed(name, width)});
    const std::size_t begin = outcome.out.find("<pre id=\"out\">");
    const std::size_t end = outcome.out.find("</pre>", begin);
    if (begin == std::string::npos || end == std::string::npos || end < begin + 16) return {};
    return core::parse_json(std::string_view(outcome.out).substr(begin + 14, end - begin - 14),
                            "measured");
  }

  std::string browser_;
};

TEST_F(InABrowser, IsReadableOnADeskAndOnAPhone) {
  for (const char* name : {"one.html", "two.html"}) {
    for (const int width : {360, 390, 820, 1280}) {
      const core::Json found = measured(name, width, false);
      ASSERT_TRUE(found.is_object()) << name << ", " << width;
      EXPECT_GE(found.at("plots").get<int>(), 9) << name;
      EXPECT_LE(found.at("overflow").get<double>(), 0) << name << ", " << width;
      EXPECT_GE(found.at("smallest").get<double>(), 10) << name << ", " << width;
      EXPECT_EQ(found.at("overlapping"), core::Json::array()) << name << ", " << width;
      EXPECT_EQ(found.at("outside"), core::Json::array()) << name << ", " << width;
    }
  }
}

TEST_F(InABrowser, IsDarkInTheDarkAndReadableInBoth) {
  const core::Json light = measured("one.html", 1280, false),
                   dark = measured("one.html", 1280, true);
  ASSERT_TRUE(light.is_object() && dark.is_object());
  EXPECT_EQ(light.at("background"), "rgb(255, 255, 255)");
  EXPECT_NE(dark.at("background"), light.at("background"));
  // WCAG 2.1, 1.4.3.
  EXPECT_GE(light.at("contrast").get<double>(), 4.5);
  EXPECT_GE(dark.at("contrast").get<double>(), 4.5);
}

TEST_F(InABrowser, IsPicturedForPeopleToLookAt) {
  const auto pictures = tests::build_folder() / "report-screenshots";
  std::filesystem::create_directories(pictures);
  const auto shoot = [&](const std::string& name, const std::string& url, const std::string& size,
                         bool is_dark) {
    const auto file = pictures / (name + ".png");
    std::filesystem::remove(file);
    const auto outcome =
        browse({std::string("--blink-settings=preferredColorScheme=") + (is_dark ? "0" : "1"),
                "--window-size=" + size, "--screenshot=" + file.string(), url});
    EXPECT_GT(std::filesystem::exists(file) ? std::filesystem::file_size(file) : 0, 20'000u)
        << name << outcome.text();
  };
  const std::string one = "file://" + (folder() / "one.html").string();
  shoot("desktop", one, "1280,3600", false);
  shoot("dark", one, "1280,3600", true);
  shoot("phone", framed("one.html", 390), "500,6000", false);
  shoot("runs", "file://" + (folder() / "two.html").string(), "1280,4200", false);
  const auto paper = pictures / "print.pdf";
  std::filesystem::remove(paper);
  browse({"--no-pdf-header-footer", "--print-to-pdf=" + paper.string(), one});
  EXPECT_TRUE(std::filesystem::exists(paper));
}

}  // namespace
}  // namespace finetune::report
