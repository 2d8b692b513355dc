// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/tokens/detail/cache.hpp"
#include "data/tokens/detail/duplicates.hpp"
#include "data/tokens/detail/gather.hpp"
#include "data/tokens/detail/part.hpp"
#include "data/tokens/detail/refuse.hpp"
#include "data/tokens/detail/shared_index.hpp"
#include "data/tokens/detail/spool.hpp"
#include "data/tokens/detail/unfinished.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

/// Rank r's samples: [size * r / ranks, size * (r + 1) / ranks).
std::int64_t first_of(const comm::Communicator& world, std::int64_t size, int rank) {
  return size * rank / world.size();
}

/// Names of tokens with the answers of all ranks that they end. Collective on `world`.
std::vector<EndCount> merge_ends(const comm::Communicator& world, const SampleSource& source,
                                 const std::map<std::int32_t, std::int64_t>& own) {
  std::vector<std::int64_t> pairs;
  for (const auto& [id, number] : own)
    pairs.insert(pairs.end(), {id, number});
  std::map<std::int32_t, std::int64_t> sums;
  for (const auto& bytes : world.all_gather_bytes(std::as_bytes(std::span(pairs)))) {
    pairs.resize(bytes.size() / sizeof(std::int64_t));
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(pairs)).begin());
    for (std::size_t k = 0; k < pairs.size(); k += 2)
      sums[static_cast<std::int32_t>(pairs[k])] += pairs[k + 1];
  }
  // The report has little room where it is kept, and a name may be any text.
  constexpr std::size_t most = 16, longest_name = 200;
  std::vector<EndCount> ends;
  for (const auto& [id, number] : sums) {
    const std::string name = source.text(std::span(&id, 1));
    ends.push_back({std::string(core::first_bytes(name, longest_name)), number});
  }
  std::ranges::stable_sort(ends, std::greater(), &EndCount::number);
  if (ends.size() > most) ends.resize(most);
  return ends;
}

/// The sample that is shown: the first that is whole and has several turns, else the first.
/// Collective on `world`.
void merge_example(const comm::Communicator& world, const Part& part, DataReport& report) {
  constexpr std::int64_t none = Count::none;
  constexpr std::int64_t behind = std::int64_t{1} << 61;  // all that have no turns come later
  const bool has_one = part.report.example >= 0;
  const std::int64_t own = !has_one ? none : part.report.example + (part.has_dialogue ? 0 : behind);
  const std::int64_t first = world.all_reduce(own, comm::Reduce::min);
  if (first == none) return;
  const auto owner = static_cast<int>(world.all_reduce(
      std::int64_t{own == first ? world.rank() : world.size()}, comm::Reduce::min));
  std::int64_t numbers[] = {report.example, report.example_has_turns ? 1 : 0, report.example_file};
  world.broadcast(std::as_writable_bytes(std::span(numbers)), owner);
  report.example = numbers[0];
  report.example_has_turns = numbers[1] != 0;
  report.example_file = numbers[2];
  report.example_text = world.broadcast_text(report.example_text, owner);
  report.example_place = world.broadcast_text(report.example_place, owner);
}

/// The report of all ranks' samples. Collective on `world`.
DataReport merge(const comm::Communicator& world, const SampleSource& source, const Part& part,
                 std::int64_t first_index) {
  DataReport report = part.report;
  std::int64_t* const numbers[] = {&report.num_read,     &report.num_dropped, &report.tokens_lost,
                                   &report.eos_trained,  &report.num_answers, &report.num_open,
                                   &report.num_unstopped};
  std::vector<std::int64_t> sums;
  for (const std::int64_t* number : numbers)
    sums.push_back(*number);
  std::vector<std::int64_t> firsts = {-report.longest};
  for (const Count& count : report.counts) {
    sums.push_back(count.number);
    firsts.push_back(count.first);
  }
  sums.insert(sums.end(), report.lengths.begin(), report.lengths.end());
  world.all_reduce(std::span(sums), comm::Reduce::sum);
  world.all_reduce(std::span(firsts), comm::Reduce::min);
  auto sum = sums.cbegin();
  for (std::int64_t* number : numbers)
    *number = *sum++;
  for (std::size_t k = 0; k < num_kinds; ++k)
    report.counts[k] = {*sum++, firsts[1 + k]};
  std::copy(sum, sums.cend(), report.lengths.begin());
  report.longest = -firsts[0];
  report.ends = merge_ends(world, source, part.ends);
  merge_example(world, part, report);
  report.of(SampleKind::duplicate) = count_duplicates(world, part.digests, first_index);
  return report;
}

/// What is not kept, as files and templates may move.
void add_places(DataReport& report, const SampleSource& source) {
  const auto files = source.files();
  const auto file = static_cast<std::size_t>(report.example_file);
  const bool is_known = report.example_file >= 0 && file < files.size();
  report.example_where = (is_known ? files[file].string() : "") + report.example_place;
  if (report.example_has_turns) report.example_template = source.written_by();
}

void count_dataset(DataReport& report, const TokenArrays& arrays) {
  report.num_samples = arrays.num_samples();
  report.num_tokens =
      arrays.bounds.back() - arrays.bounds.front() + arrays.overlap * arrays.num_samples();
  report.num_trained_tokens =
      std::accumulate(arrays.targets.begin(), arrays.targets.end(), std::int64_t{0});
}

/// Whether `prepare` fails on no rank. If it does that is warned about, unless the cache is
/// required. Collective on the world.
template <typename F>
bool agree_on_cache(const DataRanks& ranks, const CacheOptions& cache, const F& prepare) {
  try {
    comm::agree_all(ranks.world, prepare);
    return true;
  } catch (const comm::AgreedError& error) {
    if (cache.is_required) throw;
    log::warn(fmt::format("tokens are not kept for the next start: {}", error.what()));
    return false;
  }
}

/// Makes the folder of the cache. Collective on the world.
bool prepare_folder(const DataRanks& ranks, const CacheOptions& cache) {
  if (cache.folder.empty() || cache.is_read_only) return false;
  return agree_on_cache(ranks, cache, [&] {
    std::error_code error;
    if (ranks.world.is_root()) fs::create_directories(cache.folder, error);
    if (!error) return;
    core::fail(core::ErrorKind::create,
               {cache.folder.string(), "cannot be made", error.message(),
                "Set data.cache_dir to a folder that can, or data.cache = false."});
  });
}

/// Whether every rank can make files in the folder, as it must once its memory is full. Permissions
/// do not tell that of every file system. Collective on the world.
bool can_make_files(const DataRanks& ranks, const CacheOptions& cache) {
  return agree_on_cache(ranks, cache, [&] { nameless_file(cache.folder); });
}

/// In the cache, or where that cannot be, in memory. Collective on the world.
Gathered gather(const DataRanks& ranks, const Assembly& assembly, const core::Json& key,
                DataReport& report, const fs::path& target, bool is_required, Loaded& loaded) {
  const auto describe = [&](const Gathered& gathered) -> core::Json {
    count_dataset(report, gathered.arrays);
    return {{"key", key}, {"report", to_json(report)}, {"ids", gathered.ids}};
  };
  if (!target.empty()) {
    try {
      NewCacheFile file(ranks, target);
      Gathered gathered = gather_in_file(ranks.world, assembly, file.path(), describe);
      file.publish();
      if (ranks.node.is_root()) remove_unfinished(target);
      loaded.cache_file = target;
      return gathered;
    } catch (const comm::AgreedError& error) {
      const bool is_about_files =
          error.kind() == core::ErrorKind::io || error.kind() == core::ErrorKind::create;
      // What was kept for another start is in the spools, and takes the place of the cache.
      if (is_about_files && ranks.node.is_root()) remove_unfinished(target);
      if (is_required || !is_about_files) throw;
      log::warn(fmt::format("tokens are not kept for the next start: {}", error.what()));
    }
  }
  return gather_in_memory(ranks.world, assembly);
}

Loaded open_cached(const SampleSource& source, const DatasetOptions& options,
                   const DataRanks& ranks, CacheFile file, fs::path path, bool is_read_only) {
  Loaded loaded;
  loaded.name = options.name;
  loaded.report =
      comm::agree(ranks.world, [&] { return report_from_json(file.description.at("report")); });
  comm::agree_all(ranks.world, [&] { require_limits(source, loaded.report, options); });
  add_places(loaded.report, source);
  loaded.fingerprint = content_fingerprint(file.arrays, file.digests);
  loaded.ids_fingerprint = file.description.value("ids", std::string());
  if (loaded.ids_fingerprint.empty())  // of an earlier version
    loaded.ids_fingerprint = ids_fingerprint(ranks.world, file.arrays, file.digests);
  loaded.dataset = Dataset(std::move(file.arrays));
  loaded.cache_file = std::move(path);
  loaded.was_cached = true;
  // Of a process that died right after it had published the file.
  if (!is_read_only && ranks.node.is_root()) remove_unfinished(loaded.cache_file);
  return loaded;
}

/// This rank's part of `size` samples. Collective on the world. Throws: comm::Interrupted if the
/// ranks leave in the midst of it.
Part tokenise(const DataRanks& ranks, const SampleSource& source, std::int64_t size, Layout layout,
              const DatasetOptions& options, const CacheOptions& cache, const fs::path& target,
              int num_threads) {
  const comm::Communicator& world = ranks.world;
  const std::int64_t most_of_a_rank = (size + world.size() - 1) / world.size();
  PartWork work{.num_threads = num_threads,
                .target = target,
                .keep_after_tokens = cache.keep_after_tokens,
                .leave = ranks.leave,
                .num_units = (most_of_a_rank + samples_per_unit - 1) / samples_per_unit};
  const comm::Activity::Work busy(world.activity(), "tokenising", options.name);
  if (work.leave.begin) work.leave.begin(work.num_units);
  PartOutcome outcome = tokenise_part(
      source, {first_of(world, size, world.rank()), first_of(world, size, world.rank() + 1)},
      layout, options, Part(target.empty() ? fs::path() : cache.folder, cache.memory_bytes), work);
  comm::agree_all(world, [&] {
    if (outcome.error) std::rethrow_exception(outcome.error);
  });
  std::int64_t counts[] = {outcome.num_known, outcome.num_kept};
  world.all_reduce(std::span<std::int64_t>(counts), comm::Reduce::sum);
  if (outcome.is_left)
    throw comm::Interrupted(
        target.empty()
            ? fmt::format("the {} is not tokenised, and nothing is kept for the next "
                          "start, as there is no token cache (data.cache)",
                          options.name)
            : fmt::format("{} of {} samples of the {} are tokenised and kept for the "
                          "next start",
                          core::with_commas(counts[1]), core::with_commas(size), options.name));
  if (counts[0] > 0)
    log::info(fmt::format("{}: {} of {} samples were tokenised by an earlier start", options.name,
                          core::with_commas(counts[0]), core::with_commas(size)));
  return std::move(outcome.part);
}

}  // namespace

Loaded load(const DataRanks& ranks, const SampleSource& source, Layout layout,
            const DatasetOptions& options, const CacheOptions& cache, int num_threads) {
  core::check(options.max_seq_length >= 2, "a sequence needs a token and its target");
  const core::Stopwatch watch;
  const comm::Communicator& world = ranks.world;
  bool is_written = prepare_folder(ranks, cache);
  core::Json key;
  fs::path target;
  if (is_written || (cache.is_read_only && !cache.folder.empty())) {
    key = describe_key(ranks, source, layout, options, cache);
    target = cache_path(cache.folder, key);
    if (auto found = find_cached(ranks, target, options)) {
      Loaded loaded =
          open_cached(source, options, ranks, std::move(*found), target, cache.is_read_only);
      loaded.layout = layout;
      loaded.load_s = watch.seconds();
      return loaded;
    }
  }
  // What is already kept can be used wherever it can be read.
  is_written = is_written && can_make_files(ranks, cache);
  share_indices(world, source);
  const std::int64_t size = comm::agree(world, [&] { return source.size(); });
  comm::require_equal(world, "number of samples in the " + options.name, std::to_string(size));
  const std::int64_t first = first_of(world, size, world.rank());
  const Part part = tokenise(ranks, source, size, layout, options, cache,
                             is_written ? target : fs::path(), num_threads);
  DataReport report = merge(world, source, part, first);
  add_places(report, source);
  comm::agree_all(world, [&] { require_usable(source, layout, report, options); });
  const Assembly assembly = assemble(world, part, layout, options.max_seq_length);
  // Text of which the tokenizer makes nothing at all leaves nothing to predict.
  comm::agree_all(world, [&] {
    if (assembly.num_samples == 0) fail_nothing_left(report, options);
  });
  Loaded loaded;
  loaded.name = options.name;
  loaded.layout = layout;
  Gathered gathered = gather(ranks, assembly, key, report, is_written ? target : fs::path(),
                             cache.is_required, loaded);
  count_dataset(report, gathered.arrays);
  comm::agree_all(world, [&] { require_limits(source, report, options); });
  loaded.fingerprint = content_fingerprint(gathered.arrays, gathered.digests);
  loaded.ids_fingerprint = std::move(gathered.ids);
  loaded.dataset = Dataset(std::move(gathered.arrays));
  loaded.report = std::move(report);
  loaded.load_s = watch.seconds();
  return loaded;
}

}  // namespace finetune::data
