#pragma once
// SPDX-License-Identifier: Apache-2.0
// Spans of this process while it is profiled.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace finetune::trace {

/// The row of the thread that computes. Others: "data", "checkpoint", "stream of fsdp".
inline constexpr std::string_view main_row = "main";

/// A span of a row, or a moment's values. Spans of one row lie inside each other or apart. Times
/// are monotonic nanoseconds.
struct Event {
  std::string row;
  std::string name;  ///< "backward of layers.12"
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  core::Json args = {};     ///< an object, or null
  bool is_counter = false;  ///< at `begin_ns`; `args` has the values
};

struct Options {
  bool stacks = false;  ///< each span says from where in the program it was reached
  /// Null: none. Values by name, sampled as spans of the main row begin and end.
  std::function<core::Json()> memory = nullptr;
};

namespace detail {
extern std::atomic<bool> is_on;
}

/// Whether spans are kept. One relaxed load.
inline bool is_on() {
  return detail::is_on.load(std::memory_order_relaxed);
}

/// From now on spans are kept; earlier ones are forgotten. Thread-safe, as all that follows.
void start(Options options);

/// What began and ended since `start`.
struct Recording {
  std::vector<Event> events;       ///< by their begin, what encloses others first
  std::int64_t since_ns = 0;       ///< monotonic
  std::int64_t since_1970_ns = 0;  ///< the same moment by the clock of the host
  std::int64_t num_dropped = 0;    ///< events beyond those that are kept (most_events)
};

/// As many as take some 2 GiB; later ones are counted only.
inline constexpr std::size_t most_events = 4'000'000;

/// No more are kept.
Recording stop();

/// Keeps an event, if it began after `start`.
void record(Event event);

/// The caller's, innermost first, where `Options::stacks` asks for it; else null.
core::Json stack();

/// Records the time from here to its end. Without profiling it costs one relaxed load.
class Span {
 public:
  explicit Span(std::string_view row, std::string_view kind, std::string_view subject = {}) {
    if (is_on()) begin(row, kind, subject);
  }
  ~Span() { end(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  /// Before its time.
  void end() {
    if (event_.begin_ns != 0) close();
  }

 private:
  void begin(std::string_view row, std::string_view kind, std::string_view subject);
  void close() noexcept;

  Event event_;
};

}  // namespace finetune::trace
