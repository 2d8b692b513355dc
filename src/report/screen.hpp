#pragma once
// SPDX-License-Identifier: Apache-2.0
// How a run is, in lines for a terminal.

#include <cstddef>
#include <string>
#include <vector>

#include "plot/text_plot.hpp"
#include "report/run_history.hpp"
#include "report/run_state.hpp"

namespace finetune::report {

struct ScreenSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

/// Lines that fit `size`, without codes for the terminal; texts of files cannot bring any.
std::vector<std::string> screen(const RunHistory& run, const Verdict& verdict, double now_s,
                                ScreenSize size, plot::Letters letters);

/// One line of the same: for files and pipes.
std::string status_line(const RunHistory& run, const Verdict& verdict);

}  // namespace finetune::report
