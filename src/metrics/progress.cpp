// SPDX-License-Identifier: Apache-2.0
#include "metrics/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/log.hpp"

namespace finetune::metrics {
namespace {

std::string summary(const StepRecord& record, std::int64_t num_steps, double seconds_left) {
  return fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  {:.0f} tokens/s  {} left", record.step,
                     num_steps, record.loss, record.lr, record.tokens_per_s,
                     human_seconds(seconds_left));
}

}  // namespace

Progress::Progress(Style style, std::int64_t num_steps, std::int64_t every)
    : style_(style), num_steps_(num_steps), every_(every) {}

Progress::Style Progress::style_of_stdout() {
  if (::isatty(STDOUT_FILENO) != 1) return Style::lines;
  // Open MPI's mpirun gives its first rank a terminal of its own and passes the text on: what
  // counts is where mpirun itself writes to.
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return Style::bar;
  std::error_code error;
  const std::string target =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", ::getppid()), error).string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") ? Style::bar
                                                                           : Style::lines;
}

void Progress::step(const StepRecord& record) {
  meter_.add(record.step_s);
  if (style_ == Style::bar) draw_bar(record);
  const bool is_due = record.step % every_ == 0 || record.step == num_steps_ || record.step == 1;
  if (style_ == Style::lines && is_due) {
    log::info(summary(record, num_steps_, meter_.seconds_left(num_steps_ - record.step)));
  }
}

void Progress::draw_bar(const StepRecord& record) {
  constexpr std::int64_t width = 24;
  const auto filled =
      static_cast<std::size_t>(num_steps_ > 0 ? width * record.step / num_steps_ : width);
  const std::string bar =
      std::string(filled, '=') + std::string(static_cast<std::size_t>(width) - filled, ' ');
  std::fputs(fmt::format("\r\x1b[K[{}] {}", bar,
                         summary(record, num_steps_, meter_.seconds_left(num_steps_ - record.step)))
                 .c_str(),
             stdout);
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
