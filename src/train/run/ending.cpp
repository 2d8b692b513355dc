// SPDX-License-Identifier: Apache-2.0
// How a run ends, and what it says then.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "metrics/records.hpp"
#include "train/run/run.hpp"
#include "train/run/stop.hpp"

namespace finetune::train {

void Run::report_use() {
  const metrics::TimeReport total = times_.total(own_peak());
  log::info(metrics::to_string(total));
  log::info(tally_.summary());
  devices_.log_energy(tally_.tokens());
  const auto text = [](std::int64_t bytes) { return core::human_bytes(bytes); };
  log::info(
      fmt::format("memory of the rank that needed most: planned {}, of which tensors {}; used by "
                  "tensors {}, by the process {}",
                  text(plan_.memory_bytes()), text(plan_.tensor_bytes()), text(total.peak.tensors),
                  text(total.peak.process)));
}

void Run::report_stop(bool by_signal, const std::string& left) {
  stop_reason_ = by_signal ? signal_reason : "train.max_seconds is over";
  if (!by_signal) {
    return reporter_.info(fmt::format(
        "train.max_seconds = {:.0f}: {:.0f} s are left, {}{:.0f} s are reserved for the "
        "last checkpoint",
        input_.train.max_seconds, input_.train.max_seconds - process_age_s(), left,
        time_limit_.margin_s()));
  }
  reporter_.info(fmt::format(
      "a signal asks to stop: {}{}; a second {}, 3 s later or more, ends the run at once", left,
      steps_done_ == 0 ? std::string("there is no checkpoint yet")
                       : fmt::format("the last checkpoint is from step {}", steps_done_),
      second_signals()));
}

int Run::end_stopped(bool has_checkpoint) {
  output_.tell_other_branches();
  // A jobscript continues by itself, or says what to do.
  const char* next = std::getenv("FINETUNE_JOBSCRIPT") != nullptr
                         ? ""
                         : "; start the same command again to continue";
  log::info(fmt::format("stopped after step {} of {} ({}){}", steps_done_, num_steps_, stop_reason_,
                        next));
  const bool is_new = has_checkpoint && steps_done_ > start_.step;
  return end(is_new ? core::exit_resubmit : core::exit_resubmit_older, stop_reason_);
}

std::string Run::end_reason() const {
  if (steps_done_ >= num_steps_) return fmt::format("all {} steps are done", num_steps_);
  return fmt::format("stopped early after step {} of {}: {} (train.early_stopping_patience)",
                     steps_done_, num_steps_, patience_.why());
}

int Run::end_finished(double train_s) {
  // A finished run needs them no more, and others need the space.
  output_.remove_local_of_others("");
  output_.tell_other_branches();
  const std::int64_t steps = steps_done_ - start_.step;
  if (steps == 0 && start_.step > 0 && !task_result_) {
    log::info(fmt::format("nothing left to do: {}", end_reason()));
    starts_.end(steps_done_, core::exit_done, end_reason());  // of one that only validated
    return core::exit_done;
  }
  log::info(fmt::format("done: {} step{} in {}", steps, steps == 1 ? "" : "s",
                        metrics::human_seconds(train_s)));
  if (steps_done_ < num_steps_) log::info(end_reason());
  return end(core::exit_done, end_reason());
}

int Run::end(int code, const std::string& reason) {
  if (starts_.end(steps_done_, code, reason))
    reporter_.show("end", steps_done_, metrics::as_code(core::printable(reason)));
  page_.write_last();
  return code;
}

}  // namespace finetune::train
