// SPDX-License-Identifier: Apache-2.0
// What a run would be trained on, without the run: tokens kept for it, or the data report alone.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/corpus/corpus.hpp"
#include "train/input/grown_model.hpp"
#include "train/input/input.hpp"

namespace finetune::app {
namespace {

/// Loads with all cores of this process and prints the report. Returns whether all was in the
/// cache.
bool tell_data(const train::Input& input, const train::Registry& registry,
               const data::CacheOptions& cache) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  train::DataSets sets = train::load_data(train::data_input(input), registry, {}, cache, cores);
  const bool all_cached = std::ranges::all_of(sets.training, &data::Loaded::was_cached) &&
                          std::ranges::all_of(sets.validation, &data::Loaded::was_cached);
  // Neither padding nor packing depends on the number of ranks.
  const plan::BatchPlan batch = plan::plan_batch(input.plan_input({}), 1);
  (void)train::make_corpus(train::data_input(input), std::move(sets), batch, 1, 0);
  return all_cached;
}

}  // namespace

int run_tokenize(const Arguments& arguments, const train::Registry& registry) {
  train::Input input = train::read({}, arguments.path, arguments.overrides, registry);
  train::grow_model({}, input);
  data::CacheOptions cache = train::cache_options(input.data, input.train.output);
  if (cache.folder.empty()) {
    core::fail(core::ErrorKind::deck,
               {arguments.path, "data.cache = false", "there is no cache to fill",
                "Remove the key, or start the training at once."});
  }
  cache.is_required = true;
  log::info(tell_data(input, registry, cache)
                ? "nothing to do: the tokens are there already"
                : "done: training starts from these tokens if it sees the same folder");
  return core::exit_done;
}

int run_data_report(const Arguments& arguments, const train::Registry& registry) {
  train::Input input = train::read({}, arguments.path, arguments.overrides, registry);
  train::grow_model({}, input);
  data::CacheOptions cache = train::cache_options(input.data, input.train.output);
  cache.is_read_only = true;
  tell_data(input, registry, cache);
  return core::exit_done;
}

}  // namespace finetune::app
