// SPDX-License-Identifier: Apache-2.0
#include "metrics/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/log.hpp"
#include "core/log_file.hpp"
#include "core/text.hpp"

namespace finetune::metrics {
namespace {

/// Columns of the terminal a person watches, 0 if there is none. Launchers stand between: Open
/// MPI's mpirun gives its first rank a terminal of its own and passes the text on, so
/// jobscripts/local.sh says what it sees, and otherwise what counts is where mpirun itself writes
/// to.
std::int64_t terminal_columns() {
  if (const char* told = std::getenv("FINETUNE_TERMINAL_COLUMNS")) return std::atoll(told);
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  constexpr std::int64_t usual = 80;
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
    std::error_code error;
    const auto target =
        std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", ::getppid()), error);
    return target.string().starts_with("/dev/pts/") ? usual : 0;
  }
  struct winsize size {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : usual;
}

std::string summary(const StepRecord& record, std::int64_t num_steps, double seconds_left) {
  const std::string epoch = record.epoch ? fmt::format("  epoch {:.2f}", *record.epoch) : "";
  const std::string mfu = record.mfu ? fmt::format("  {:.1f} % MFU", 100 * *record.mfu) : "";
  return fmt::format("step {}/{}{}  loss {:.4f}  lr {:.2e}  {:.0f} tokens/s{}  {} left",
                     record.step, num_steps, epoch, record.loss, record.lr, record.tokens_per_s,
                     mfu, human_seconds(seconds_left));
}

/// For lines, which may be longer than a terminal.
std::string totals(const StepRecord& record) {
  if (!record.total_samples || !record.total_tokens) return "";
  return fmt::format("  so far {} samples, {} tokens", core::with_commas(*record.total_samples),
                     core::with_commas(*record.total_tokens));
}

}  // namespace

Progress::Progress(Style style, std::int64_t num_steps, std::int64_t every)
    : style_(style),
      num_steps_(num_steps),
      every_(every),
      columns_(std::max<std::int64_t>(20, terminal_columns())) {}

Progress::Style Progress::style_of_stdout() {
  return terminal_columns() > 0 ? Style::bar : Style::lines;
}

void Progress::step(const StepRecord& record) {
  meter_.add(record.step_s);
  if (style_ == Style::bar) draw_bar(record);
  const bool is_due = record.step % every_ == 0 || record.step == num_steps_ || record.step == 1;
  if (style_ == Style::silent || !is_due) return;
  const std::string line =
      summary(record, num_steps_, meter_.seconds_left(num_steps_ - record.step)) + totals(record);
  // A bar is for the terminal; the file gets what a job's output would have.
  if (style_ == Style::lines)
    log::info(line);
  else
    log::note(line);
}

void Progress::draw_bar(const StepRecord& record) {
  constexpr std::int64_t width = 16;
  const auto filled =
      static_cast<std::size_t>(num_steps_ > 0 ? width * record.step / num_steps_ : width);
  const std::string bar =
      std::string(filled, '=') + std::string(static_cast<std::size_t>(width) - filled, ' ');
  std::string line = fmt::format(
      "[{}] {}", bar, summary(record, num_steps_, meter_.seconds_left(num_steps_ - record.step)));
  // A line that wraps cannot be drawn over.
  line.resize(std::min(line.size(), static_cast<std::size_t>(columns_ - 1)));
  std::fputs(("\r\x1b[K" + line).c_str(), stdout);
  std::fflush(stdout);
  bar_is_drawn_ = true;
}

void Progress::pause() {
  if (bar_is_drawn_) std::fputs("\n", stdout);
  std::fflush(stdout);
  bar_is_drawn_ = false;
}

std::string human_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace finetune::metrics
