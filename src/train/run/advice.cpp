// SPDX-License-Identifier: Apache-2.0
#include "train/run/advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"
#include "metrics/progress.hpp"

namespace finetune::train {
namespace {

/// Adapters are published with 1e-4 to 4e-4, all weights with 5e-6 to 5e-5: about ten times less
/// (inputs/recipes name whose these are). These are rates of the default optimizer;
/// those of another are Kind::usual_lr times as large.
struct UsualRates {
  double first, last;
};
constexpr UsualRates of_adapter = {1e-4, 4e-4}, of_all_weights = {5e-6, 5e-5};
constexpr double least_of_adapter = 5e-5, most_of_all_weights = 1e-4;
/// Smaller models are trained with larger rates.
constexpr std::int64_t large_model = 100'000'000;
constexpr double cut_share = 0.01;
constexpr double long_run_s = 2 * 3600;
/// Tiny data for a trial may be smaller than a batch.
constexpr std::int64_t small_batch_of_trial = 64;

/// The shortest power of two that fewer than 1 % of the samples exceed.
std::int64_t length_for_most(const data::DataReport& report) {
  std::int64_t longer = 0;
  const auto allowed = static_cast<std::int64_t>(cut_share * static_cast<double>(report.num_read));
  for (std::size_t k = data::DataReport::num_lengths; k-- > 0;) {
    longer += report.lengths[k];
    if (longer > allowed) return std::min(std::int64_t{1} << (k + 1), report.longest);
  }
  return report.longest;
}

/// "1e-4 to 4e-4".
std::string to_string(const UsualRates& rates, double unit) {
  const auto one = [&](double rate) {
    std::string text = fmt::format("{:.0e}", unit * rate);
    if (const auto zero = text.find("e-0"); zero != std::string::npos) text.erase(zero + 2, 1);
    return text;
  };
  return fmt::format("{} to {}", one(rates.first), one(rates.last));
}

}  // namespace

std::vector<std::string> advice_on_lr(const Input& input) {
  const double lr = input.optimizer.lr;
  const model::Adapter* adapter = input.adapter.kind;
  const double unit = input.optimizer.kind->usual_lr * (adapter == nullptr ? 1 : adapter->usual_lr);
  const std::string where = fmt::format("optimizer.lr = {}", lr);
  if (input.model.init == InitialWeights::random || lr <= 0) return {};
  if (input.is_adapted() && lr < unit * least_of_adapter)
    return {
        core::to_string({where, "is a learning rate for training all weights",
                         fmt::format("adapter.name = \"{}\" trains few new ones, which move too "
                                     "little with it",
                                     input.adapter.name),
                         fmt::format("Adapters usually take {}.", to_string(of_adapter, unit))})};
  if (!input.is_adapted() && lr > unit * most_of_all_weights &&
      input.parameters.num_parameters() >= large_model)
    return {core::to_string(
        {where, "is a learning rate for adapters",
         "adapter.name = \"none\" trains all weights, which forget with it what "
         "the model knows",
         fmt::format("All weights usually take {}.", to_string(of_all_weights, unit))})};
  return {};
}

std::optional<std::string> advice_on_cuts(const data::DataReport& report, const std::string& name,
                                          std::int64_t max_seq_length) {
  const std::int64_t cut = report.of(data::SampleKind::truncated).number;
  if (static_cast<double>(cut) <= cut_share * static_cast<double>(report.num_read)) return {};
  return core::to_string(
      {name,
       fmt::format("{} of {} samples ({:.1f} %) are cut at data.max_seq_length = {}",
                   core::with_commas(cut), core::with_commas(report.num_read),
                   100 * static_cast<double>(cut) / static_cast<double>(report.num_read),
                   max_seq_length),
       "the model does not learn how they end",
       fmt::format("With {} fewer than 1 % would be; data.on_overlong = \"drop\" leaves them out.",
                   length_for_most(report))});
}

std::optional<std::string> advice_on_saves(const checkpoint::CheckpointSettings& settings,
                                           double step_s, std::int64_t steps_left,
                                           std::int64_t steps_per_epoch) {
  const double left_s = step_s * static_cast<double>(steps_left);
  if (left_s < long_run_s) return {};
  const bool by_steps = settings.save_steps > 0 && settings.save_steps < steps_left;
  const bool by_epochs =
      settings.save_epochs > 0 &&
      settings.save_epochs * static_cast<double>(steps_per_epoch) < static_cast<double>(steps_left);
  const bool by_minutes = settings.save_minutes > 0 && 60 * settings.save_minutes < left_s;
  const bool on_nodes = settings.has_local_level();
  if (by_steps || by_epochs || by_minutes || on_nodes) return {};
  return core::to_string(
      {fmt::format("checkpoint.save_steps = {}, save_epochs = {} and save_minutes = {}",
                   settings.save_steps, settings.save_epochs, settings.save_minutes),
       fmt::format("nothing is saved before the end, in {}", metrics::human_seconds(left_s)),
       "a failure costs everything before it", "Set checkpoint.save_minutes = 30."});
}

std::optional<std::string> advice_on_epoch(std::int64_t global_batch, std::int64_t epoch_size,
                                           const std::filesystem::path& deck_path) {
  if (global_batch <= epoch_size) return {};
  const core::Message message = {
      fmt::format("train.global_batch = {}", core::with_commas(global_batch)),
      fmt::format("exceeds the {} sequence{} of an epoch", core::with_commas(epoch_size),
                  epoch_size == 1 ? "" : "s"),
      "a step takes none of them twice",
      fmt::format("Use {} or less.", core::with_commas(epoch_size))};
  if (global_batch > small_batch_of_trial) {
    core::Message refused = message;
    refused.where = deck_path.string() + ": " + refused.where;
    core::fail(core::ErrorKind::deck, refused);
  }
  return core::to_string(message);
}

}  // namespace finetune::train
