// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "commands.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "report/page.hpp"
#include "report/pictures.hpp"

namespace finetune::app {
namespace {

void write(const std::string& path, const std::string& text) {
  try {
    core::write_text_atomically(path, text);
  } catch (const core::Error& error) {
    throw core::Error(core::ErrorKind::create, error.what());
  }
}

std::string picture(const std::string& name, std::span<const std::filesystem::path> folders,
                    plot::Spacing spacing) {
  std::vector<report::RunHistory> runs;
  for (const auto& folder : folders)
    runs.push_back(report::read_run(folder));
  const auto found = report::pictures(name, runs, spacing);
  if (found.size() == 1) return report::to_svg_file(found.front());
  core::fail(
      core::ErrorKind::input,
      {fmt::format("--svg {}", name),
       found.empty() ? "no run has what it shows"
                     : fmt::format("there are {} of them", found.size()),
       "the file holds one picture",
       found.empty() ? "finetune report without --svg shows what there is." : "Name one run."});
}

}  // namespace

int run_report(const Arguments& arguments) {
  const std::vector<std::filesystem::path> folders(arguments.runs.begin(), arguments.runs.end());
  const plot::Spacing spacing =
      arguments.is_logarithmic ? plot::Spacing::logarithmic : plot::Spacing::linear;
  std::string text;
  if (arguments.is_csv) {
    text = report::csv(folders);
  } else if (!arguments.picture.empty()) {
    text = picture(arguments.picture, folders, spacing);
  } else {
    const double now_s = core::unix_time_s();
    std::vector<report::ReportedRun> runs;
    for (const auto& folder : folders)
      runs.push_back(report::read_reported(folder, now_s));
    text = report::page(std::move(runs), now_s, spacing);
  }
  const bool is_page = !arguments.is_csv && arguments.picture.empty();
  const std::string path = arguments.second.empty() && is_page ? "report.html" : arguments.second;
  if (path.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return core::exit_done;
  }
  write(path, text);
  log::info(fmt::format("written: {}", path));
  return core::exit_done;
}

}  // namespace finetune::app
