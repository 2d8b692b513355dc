// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "commands.hpp"
#include "core/error.hpp"

namespace finetune::app {

std::int64_t parse_bytes(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, double>, 10> units = {{{"", 1},
                                                                          {"B", 1},
                                                                          {"KB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"TB", 1e12},
                                                                          {"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30},
                                                                          {"TiB", 0x1p40}}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' '))
    unit.remove_prefix(1);
  for (const auto& [name, factor] : units) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == name && bytes >= 1 && bytes < 0x1p60)
      return static_cast<std::int64_t>(bytes);
  }
  core::fail(core::ErrorKind::command_line,
             {"finetune", fmt::format("\"{}\" is not a number of bytes", text), "",
              "Write for example 80GiB or 5GB."});
}

}  // namespace finetune::app
