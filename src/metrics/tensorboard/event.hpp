#pragma once
// SPDX-License-Identifier: Apache-2.0
// What TensorBoard shows of a moment of a run: numbers and texts, as messages of its format.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::metrics {

struct EventNumber {
  std::string tag;   ///< "train/loss": what is before the slash groups them
  double value = 0;  ///< fp32 in the file
};

struct EventText {
  std::string tag;
  std::string text;  ///< UTF-8; shown as Markdown
};

/// A bar for each of `heights`, the first from `begin` to `begin` + 1, the next behind it.
struct EventBars {
  std::string tag;
  double begin = 0;
  std::vector<double> heights;
};

struct Event {
  double wall_time_s = 0;  ///< since 1970; 0: when it is written
  std::int64_t step = 0;
  std::vector<EventNumber> numbers = {};
  std::vector<EventText> texts = {};
  std::vector<EventBars> bars = {};  ///< TensorBoard's histograms
};

std::string to_bytes(const Event& event);

/// The first of a file: the version of the format that follows.
std::string version_event(double wall_time_s);

/// A start: a reader forgets what it has read of `first_step` and later ones.
std::string start_event(double wall_time_s, std::int64_t first_step);

/// Of an event that was written; 0 if it has none.
std::int64_t step_of_event(std::string_view bytes);

/// `text` so that Markdown shows it as it is: a block of code.
std::string as_code(std::string_view text);

}  // namespace finetune::metrics
