#pragma once
// SPDX-License-Identifier: Apache-2.0
// A curve in a terminal.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "plot/smooth.hpp"

namespace finetune::plot {

enum class Letters {
  braille,  ///< eight dots a letter (Unicode 2800 to 28FF)
  ascii,
};

/// Lines of at most `columns` letters, `rows` of them for the curve and one for the x axis; none of
/// points that are not there. `points` are ordered by x. `x_name` stands before the last x.
std::vector<std::string> text_plot(const Points& points, std::size_t columns, std::size_t rows,
                                   Letters letters, std::string_view x_name = "step ");

/// "[#####.....]" of `columns` letters; `part` from 0 to 1.
std::string text_bar(double part, std::size_t columns, Letters letters);

}  // namespace finetune::plot
