// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/lr_continuity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "optim/schedule.hpp"

namespace finetune::train {
namespace {

constexpr std::int64_t most_read_bytes = std::int64_t{1} << 20;

std::string end_of(const std::filesystem::path& path) {
  const core::File file(path, core::File::Mode::read);
  const std::int64_t size = file.size_bytes();
  const std::int64_t first = std::max<std::int64_t>(0, size - most_read_bytes);
  std::string text(static_cast<std::size_t>(size - first), '\0');
  file.read_at(first, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The rate of a row of a step, nothing for other rows.
std::optional<double> lr_in(std::string_view row, std::int64_t step) {
  if (!row.starts_with(fmt::format("{{\"step\": {},", step))) return std::nullopt;
  const core::Json parsed = core::Json::parse(row, nullptr, /*allow_exceptions=*/false);
  const auto lr = parsed.is_object() ? parsed.find("lr") : parsed.end();
  if (!parsed.is_object() || lr == parsed.end() || !lr->is_number()) return std::nullopt;
  return lr->get<double>();
}

bool is_close(double a, double b) {
  return std::abs(a - b) <= 0.1 * std::max(std::abs(a), std::abs(b));
}

}  // namespace

std::optional<double> lr_of_step(const std::filesystem::path& metrics, std::int64_t step) {
  std::string text;
  try {
    text = end_of(metrics);
  } catch (const core::Error&) {
    return std::nullopt;  // a run without metrics goes on all the same
  }
  std::optional<double> found;
  for (std::string_view left = text; !left.empty();) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    if (const auto lr = lr_in(left.substr(0, end), step)) found = lr;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return found;
}

std::optional<std::string> advice_on_lr_jump(const optim::OptimizerSettings& settings,
                                             std::int64_t num_steps, std::int64_t steps_done,
                                             double lr_before) {
  if (steps_done <= 0 || steps_done >= num_steps) return std::nullopt;
  const optim::Schedule schedule(settings, num_steps);
  const double again = schedule.lr(steps_done - 1), next = schedule.lr(steps_done);
  if (is_close(again, lr_before) || is_close(next, lr_before)) return std::nullopt;
  std::string remedy = "Restore train.max_steps or train.epochs to end as the run began";
  // At the end of a decay nothing is left to go on with.
  constexpr double least_share = 0.01;
  if (next > lr_before && lr_before >= least_share * settings.lr)
    remedy += fmt::format(
        "; to train longer at the low rate, export the model and begin a new run from it with "
        "optimizer.schedule = \"constant\" and optimizer.lr = {:.3g}",
        lr_before);
  return core::to_string(
      {fmt::format("step {}", steps_done + 1),
       fmt::format("the learning rate jumps from {:.3g} to {:.3g}", lr_before, next),
       fmt::format("optimizer.schedule follows the length of the run, which is now {} steps",
                   num_steps),
       remedy + "."});
}

}  // namespace finetune::train
