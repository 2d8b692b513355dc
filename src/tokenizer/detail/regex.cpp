// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::tokenizer {
namespace {

// Patterns come from other people's files: a match may cost this much and no more.
constexpr std::uint32_t match_limit = 1'000'000;
constexpr std::uint32_t depth_limit = 100'000;
constexpr std::uint32_t heap_limit_kib = 64 * 1024;
constexpr std::size_t longest_pattern = 64 * 1024;

// The match limit counts anew at every byte where a match might start, so it bounds one start and
// not a text. Hence starts are tried in windows, and the clock is looked at between them. Useful
// patterns need a hundredth of this.
constexpr std::size_t window_bytes = 1024;
constexpr unsigned calls_between_looks = 4;
constexpr double free_seconds = 2.0;
constexpr double seconds_per_byte = 1e-5;

/// Processor time of this thread, so that a machine with other things to do refuses nothing.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[noreturn]] void refuse(const std::string& place, const std::string& problem,
                         const std::string& why) {
  core::fail(core::ErrorKind::input,
             {core::one_line(place), core::one_line(problem), core::one_line(why),
              "Use a tokenizer.json with another pattern."});
}

std::string reason(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Matcher::State {
  // One pair is enough: only the whole match is asked for.
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  core::Stopwatch watch;
  double first_thread_seconds = thread_seconds();
  std::size_t bytes = 0;  // gone through
  unsigned calls = 0;

  State() {
    core::check(data != nullptr && context != nullptr, "PCRE2 has no memory");
    pcre2_set_match_limit(context, match_limit);
    pcre2_set_depth_limit(context, depth_limit);
    pcre2_set_heap_limit(context, heap_limit_kib);
  }
  ~State() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Whether the budget is used up after one more call, which moved on by `more_bytes`.
  bool exhausted(std::size_t more_bytes) {
    bytes += more_bytes;
    if (++calls % calls_between_looks != 0) return false;
    const double budget = free_seconds + seconds_per_byte * static_cast<double>(bytes);
    // Time on the wall costs little to read and is never less.
    return watch.seconds() > budget && thread_seconds() - first_thread_seconds > budget;
  }
};

Matcher::Matcher() = default;
Matcher::~Matcher() = default;

Matcher::State& Matcher::state() {
  if (!state_) state_ = std::make_unique<State>();
  return *state_;
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;

  explicit Code(pcre2_code* compiled) : code(compiled) {
    jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Regex::Regex(const std::string& pattern, const std::string& place) : place_(place) {
  if (pattern.empty() || pattern.size() > longest_pattern) {
    refuse(place, fmt::format("a pattern of {} bytes", pattern.size()),
           fmt::format("1 to {} are possible", longest_pattern));
  }
  const std::string translated = to_pcre2(pattern, place);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ always match at line ends.
  constexpr std::uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), options, &error, &offset, nullptr);
  if (code == nullptr) {
    refuse(place, fmt::format("the pattern {} cannot be compiled", pattern),
           fmt::format("{} at byte {}", reason(error), offset));
  }
  code_ = std::make_shared<const Code>(code);
}

std::optional<ByteRange> Regex::find(std::string_view text, std::size_t from,
                                     Matcher& matcher) const {
  while (true) {
    const std::size_t last_start = std::min(from + window_bytes, text.size());
    const std::optional<ByteRange> found = find_between(text, from, last_start, matcher);
    const std::size_t reached = found ? found->end : last_start;
    if (matcher.state().exhausted(reached - from)) {
      refuse(place_, "the pattern takes too long",
             fmt::format("after {} bytes of text it was given up", matcher.state().bytes));
    }
    if (found || last_start == text.size()) return found;
    from = last_start + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80)
      ++from;
  }
}

std::optional<ByteRange> Regex::find_between(std::string_view text, std::size_t from,
                                             std::size_t last_start, Matcher& matcher) const {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const Matcher::State& state = matcher.state();
  pcre2_set_offset_limit(state.context, last_start);
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    found = pcre2_jit_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data,
                            state.context);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
    found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        state.data, state.context);
  }
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    core::fail(
        core::ErrorKind::input,
        {core::one_line(place_), fmt::format("the pattern gave up at byte {} of a text", from),
         reason(found), "Look at the text there, or split it into shorter samples."});
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state.data);
  // \K in a look-ahead can set the start behind the end, or before `from`.
  if (ends[0] > ends[1] || ends[0] < from) refuse(place_, "a match ends before it starts", "\\K");
  return ByteRange{ends[0], ends[1]};
}

}  // namespace finetune::tokenizer
