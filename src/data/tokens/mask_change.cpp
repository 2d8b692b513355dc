// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/mask_change.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/tokens/detail/cache_file.hpp"
#include "data/tokens/detail/show.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

bool has_same_ids(std::span<const PackedToken> a, std::span<const PackedToken> b) {
  return std::ranges::equal(a, b, {}, &PackedToken::id, &PackedToken::id);
}

bool has_same_mask(std::span<const PackedToken> a, std::span<const PackedToken> b) {
  return std::ranges::equal(a, b, {}, &PackedToken::trained, &PackedToken::trained);
}

std::optional<CacheFile> find_earlier(const fs::path& folder,
                                      const std::function<bool(const std::string&)>& is_earlier) {
  std::error_code ignored;
  for (fs::directory_iterator i(folder, ignored), end; !ignored && i != end; i.increment(ignored)) {
    if (i->path().extension() != ".h5") continue;
    try {
      CacheFile file = CacheFile::open(i->path());
      if (!is_earlier(content_fingerprint(file.arrays, file.digests))) continue;
      file.verify(i->path(), 0, std::ssize(file.digests));
      return file;
    } catch (const core::Error&) {
      continue;  // damaged, or of another version
    }
  }
  return std::nullopt;
}

/// Sample `i` of `arrays`; nothing where they say it is outside of its tokens.
std::span<const PackedToken> sample_of(const TokenArrays& arrays, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  const std::int64_t begin = arrays.bounds[at];
  const std::int64_t end = arrays.bounds[at + 1] + arrays.overlap;
  if (begin < 0 || end <= begin || end > std::ssize(arrays.tokens)) return {};
  return arrays.sample(i);
}

struct Differing {
  std::int64_t number = 0;
  std::int64_t first = -1;
};

/// The samples whose masks differ; nothing if the tokens do.
std::optional<Differing> compare(const TokenArrays& before, const Dataset& now) {
  if (before.num_samples() != now.num_samples()) return std::nullopt;
  Differing differing;
  for (std::int64_t i = 0; i < now.num_samples(); ++i) {
    const auto old_sample = sample_of(before, i);
    const auto sample = now.sample(i);
    if (!has_same_ids(old_sample, sample)) return std::nullopt;
    if (has_same_mask(old_sample, sample)) continue;
    if (differing.number++ == 0) differing.first = i;
  }
  return differing;
}

/// Where in its source the sample is that became the `i`-th of the data set: as many were dropped
/// before it at most as were dropped at all. -1: not found.
std::int64_t find_in_source(const SampleSource& source, const Loaded& now, std::int64_t i) {
  constexpr std::int64_t most = 10'000;  // it is a courtesy
  const auto kept = now.dataset.sample(i);
  const std::int64_t last = std::min(i + std::min(now.report.num_dropped, most), source.size() - 1);
  for (std::int64_t at = i; now.layout == Layout::separate && at <= last; ++at) {
    const std::vector<std::int32_t> ids = source.sample(at).tokens.ids;
    const auto same = std::ranges::mismatch(kept, ids, {}, &PackedToken::id);
    if (same.in1 == kept.end()) return at;
  }
  return -1;
}

std::string show_both(const SampleSource& source, const Loaded& now, const TokenArrays& before,
                      const Differing& differing) {
  const std::int64_t at = find_in_source(source, now, differing.first);
  const std::vector<Turn> turns = at < 0 ? std::vector<Turn>() : source.turns(at);
  const auto shown = [&](std::span<const PackedToken> sample) {
    return turns.empty() ? show(source, sample) : show_turns(source, sample, turns);
  };
  const std::string place = at < 0
                                ? fmt::format("sequence {}", core::with_commas(differing.first + 1))
                                : core::one_line(source.where(at));
  return fmt::format(
      "    {} of {} samples differ, first {}; lines after + are trained, those after - are not, "
      "\\n is a new line\n    As it is read now:\n{}\n    As the run was trained on it:\n{}",
      core::with_commas(differing.number), core::with_commas(now.dataset.num_samples()), place,
      shown(now.dataset.sample(differing.first)), shown(before.sample(differing.first)));
}

}  // namespace

std::optional<MaskChange> find_mask_change(
    const fs::path& cache_folder, const std::function<bool(const std::string&)>& is_earlier,
    const Loaded& now, const std::function<std::unique_ptr<SampleSource>()>& open) {
  if (cache_folder.empty()) return std::nullopt;
  const auto earlier = find_earlier(cache_folder, is_earlier);
  if (!earlier) return std::nullopt;
  const auto differing = compare(earlier->arrays, now.dataset);
  if (!differing) return MaskChange{};
  MaskChange change{true, {}};
  try {
    if (differing->number > 0) change.shown = show_both(*open(), now, earlier->arrays, *differing);
  } catch (const core::Error&) {
    // The files are gone since: what differs is known all the same.
  }
  return change;
}

}  // namespace finetune::data
