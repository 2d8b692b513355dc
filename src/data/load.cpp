// SPDX-License-Identifier: Apache-2.0
#include "data/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "data/part.hpp"

namespace finetune::data {
namespace {

/// Sums, largest and smallest over the ranks. Collective on `world`.
Findings combine(const comm::Communicator& world, Findings found) {
  std::array sums = {found.num_overlong, found.num_truncated, found.num_masked, found.num_dropped,
                     found.eos_trained};
  world.all_reduce(std::span<std::int64_t>(sums), comm::Reduce::sum);
  std::array firsts = {found.first_overlong, found.first_masked, -found.longest};
  world.all_reduce(std::span<std::int64_t>(firsts), comm::Reduce::min);
  return {sums[0], sums[1], sums[2], sums[3], sums[4], -firsts[2], firsts[0], firsts[1]};
}

[[noreturn]] void fail_overlong(const Reader& reader, const Findings& found,
                                const DatasetOptions& options) {
  core::fail(
      core::ErrorKind::input,
      {reader.sample(found.first_overlong).where,
       fmt::format("the sample is longer than data.max_seq_length = {}", options.max_seq_length),
       fmt::format("{} {}, the longest has {} tokens", found.num_overlong,
                   found.num_overlong == 1 ? "sample is" : "samples are", found.longest),
       "Raise data.max_seq_length, or set data.on_overlong = \"truncate\" or \"drop\"."});
}

[[noreturn]] void fail_masked(const Reader& reader, Layout layout, const Encoder& encoder,
                              const Findings& found, const DatasetOptions& options) {
  const Sample sample = reader.sample(found.first_masked);
  const bool cut = layout == Layout::separate &&
                   std::ssize(tokenise(sample, encoder).ids) > options.max_seq_length;
  std::string cause = layout == Layout::separate ? "its answer is empty" : "it is empty";
  if (cut) {
    cause = fmt::format("its answer lies beyond data.max_seq_length = {}", options.max_seq_length);
  }
  core::fail(core::ErrorKind::input,
             {sample.where, "no token of the sample is trained, " + cause,
              fmt::format("{} such {} would add nothing to the loss", found.num_masked,
                          found.num_masked == 1 ? "sample" : "samples"),
              fmt::format("{}, or set data.on_masked = \"drop\".",
                          cut ? "Raise data.max_seq_length" : "Mend or remove it")});
}

[[noreturn]] void fail_nothing_left(const Reader& reader, const Findings& found,
                                    const DatasetOptions& options) {
  core::fail(core::ErrorKind::input,
             {options.name, fmt::format("none of {} samples is left", reader.size()),
              fmt::format("{} are longer than data.max_seq_length = {}, {} have no trained token",
                          found.num_overlong, options.max_seq_length, found.num_masked),
              "Check data.format, data.max_seq_length and data.on_overlong."});
}

/// Refuses what the options do not allow. Every rank decides the same.
void check_findings(const Reader& reader, Layout layout, const Encoder& encoder,
                    const Findings& found, const DatasetOptions& options) {
  if (found.num_overlong > 0 && options.on_overlong == OnOverlong::error)
    fail_overlong(reader, found, options);
  if (found.num_masked > 0 && options.on_masked == OnMasked::error)
    fail_masked(reader, layout, encoder, found, options);
  if (found.num_dropped == reader.size()) fail_nothing_left(reader, found, options);
}

/// The ranks' arrays one after the other, on every rank. Collective on `world`.
template <typename T>
std::vector<T> gather(const comm::Communicator& world, const std::vector<T>& own) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()));
  const std::int64_t own_size = std::ssize(own);
  world.all_gather(core::DType::i64, &own_size, sizes.data(), 1);
  std::vector<T> all(static_cast<std::size_t>(std::reduce(sizes.begin(), sizes.end())));
  std::size_t begin = 0;
  // A broadcast a rank, in place: counts may exceed 2^31, and nothing is held twice.
  for (int root = 0; root < world.size(); ++root) {
    const auto part = std::span(all).subspan(
        begin, static_cast<std::size_t>(sizes[static_cast<std::size_t>(root)]));
    if (root == world.rank()) std::copy(own.begin(), own.end(), part.begin());
    world.broadcast(std::as_writable_bytes(part), root);
    begin += part.size();
  }
  return all;
}

std::vector<Span> separate_samples(const std::vector<std::int64_t>& lengths) {
  std::vector<Span> samples;
  samples.reserve(lengths.size());
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    samples.push_back({begin, length});
    begin += length;
  }
  return samples;
}

/// Blocks of `max_seq_length` positions; the token after the last position is its target.
std::vector<Span> continuous_samples(std::int64_t num_tokens, std::int64_t max_seq_length) {
  std::vector<Span> samples;
  for (std::int64_t begin = 0; begin + 1 < num_tokens; begin += max_seq_length)
    samples.push_back({begin, std::min(max_seq_length + 1, num_tokens - begin)});
  return samples;
}

DataReport make_report(const Dataset& dataset, const Findings& found, std::int64_t num_read) {
  return {.num_read = num_read,
          .num_samples = dataset.num_samples(),
          .num_tokens = dataset.num_tokens(),
          .num_trained_tokens = dataset.num_trained_tokens(),
          .num_overlong = found.num_overlong,
          .num_truncated = found.num_truncated,
          .num_masked = found.num_masked,
          .num_dropped = found.num_dropped,
          .longest = found.longest,
          .eos_trained = found.eos_trained};
}

/// Rank r's samples: [size * r / ranks, size * (r + 1) / ranks).
Part own_part(const comm::Communicator& world, const Reader& reader, Layout layout,
              const Encoder& encoder, const DatasetOptions& options) {
  const auto bound = [&](std::int64_t rank) { return reader.size() * rank / world.size(); };
  return tokenise_part(reader, bound(world.rank()), bound(world.rank() + 1), layout, encoder,
                       options);
}

}  // namespace

Loaded load(const comm::Communicator& world, const Reader& reader, Layout layout,
            const Encoder& encoder, const DatasetOptions& options) {
  core::check(options.max_seq_length >= 2, "a sequence needs a token and its target");
  comm::require_equal(world, "number of samples in the " + options.name,
                      std::to_string(reader.size()));
  const Part part =
      comm::agree(world, [&] { return own_part(world, reader, layout, encoder, options); });
  const Findings found = combine(world, part.findings);
  comm::agree_all(world, [&] { check_findings(reader, layout, encoder, found, options); });

  const std::vector<std::int64_t> lengths = gather(world, part.lengths);
  auto tokens = std::make_shared<std::vector<PackedToken>>(gather(world, part.tokens));
  std::vector<Span> samples = layout == Layout::separate
                                  ? separate_samples(lengths)
                                  : continuous_samples(std::ssize(*tokens), options.max_seq_length);
  Loaded loaded;
  loaded.dataset = Dataset(std::move(tokens), std::move(samples));
  // Text of which the tokenizer makes nothing at all leaves nothing to predict.
  comm::agree_all(world, [&] {
    if (loaded.dataset.num_samples() == 0) fail_nothing_left(reader, found, options);
  });
  loaded.report = make_report(loaded.dataset, found, reader.size());
  return loaded;
}

}  // namespace finetune::data
