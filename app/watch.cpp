// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "commands.hpp"
#include "core/clock.hpp"
#include "report/screen.hpp"

namespace finetune::app {
namespace {

volatile std::sig_atomic_t is_interrupted = 0;

void interrupt(int) {
  is_interrupted = 1;
}

/// From now on Ctrl-C ends the watch and not the process, whose terminal is to be left as it was.
void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = interrupt;  // no SA_RESTART: waiting ends, too
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(signal, &action, nullptr);
}

report::ScreenSize terminal_size() {
  struct winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {.columns = 120, .rows = 28};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

/// As the locale says; a file may be read anywhere.
plot::Letters letters_of_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string text = value;
    const bool is_utf8 = text.find("UTF-8") != text.npos || text.find("utf8") != text.npos ||
                         text.find("UTF8") != text.npos || text.find("utf-8") != text.npos;
    return is_utf8 ? plot::Letters::braille : plot::Letters::ascii;
  }
  return plot::Letters::ascii;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// The other screen of a terminal, without a cursor, as long as this lives.
class OtherScreen {
 public:
  OtherScreen() { print("\x1b[?1049h\x1b[?25l"); }
  ~OtherScreen() { print("\x1b[?25h\x1b[?1049l"); }
  OtherScreen(const OtherScreen&) = delete;
  OtherScreen& operator=(const OtherScreen&) = delete;

  /// Line by line over what was there, so that nothing flickers.
  void draw(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (const std::string& line : lines)
      text += line + "\x1b[K\n";
    print(text + "\x1b[J");
  }
};

class Watch {
 public:
  explicit Watch(const Arguments& arguments)
      : reader_(arguments.path), interval_s_(arguments.interval_s) {}

  report::RunState look() {
    reader_.update();
    now_s_ = core::unix_time_s();
    verdict_ = report::judge(run(), report::is_held(run().folder), now_s_);
    return verdict_.state;
  }

  std::vector<std::string> lines(report::ScreenSize size) const {
    return report::screen(run(), verdict_, now_s_, size, letters_of_locale());
  }

  void print_screen() const {
    for (const std::string& line : lines(terminal_size()))
      print(line + "\n");
  }

  /// Until the run ends or somebody has seen enough.
  void on_terminal() {
    OtherScreen other;
    do {
      other.draw(lines(terminal_size()));
    } while (waits() && !is_over(look()));
  }

  /// A line wherever something is new.
  void on_pipe() {
    std::string last;
    do {
      const std::string key = fmt::format("{} {}", run().last_step(), to_string(verdict_.state));
      if (key != last) print(report::status_line(run(), verdict_) + "\n");
      last = key;
      if (is_over(verdict_.state)) return;
    } while (waits() && (look(), true));
  }

 private:
  const report::RunHistory& run() const { return reader_.history(); }

  static bool is_over(report::RunState state) {
    return state == report::RunState::finished || state == report::RunState::failed;
  }

  bool waits() const {
    if (is_interrupted == 0) ::poll(nullptr, 0, static_cast<int>(1000 * interval_s_));
    return is_interrupted == 0;
  }

  report::HistoryReader reader_;
  double interval_s_;
  double now_s_ = 0;
  report::Verdict verdict_;
};

}  // namespace

int run_watch(const Arguments& arguments) {
  Watch watch(arguments);
  report::RunState state = watch.look();
  if (!arguments.is_once) {
    watch_interrupts();
    if (::isatty(STDOUT_FILENO) != 0)
      watch.on_terminal();
    else
      watch.on_pipe();
    state = watch.look();
  }
  if (arguments.is_once || ::isatty(STDOUT_FILENO) != 0) watch.print_screen();
  return report::exit_code(state);
}

}  // namespace finetune::app
