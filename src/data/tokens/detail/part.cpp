// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "data/tokens/detail/made.hpp"
#include "data/tokens/detail/show.hpp"
#include "data/tokens/detail/unfinished.hpp"

namespace finetune::data {
namespace {

/// Whether nothing of it would be trained. In a sequence of its own the first token is never a
/// target; a document's first token follows the document before.
bool is_masked(std::span<const PackedToken> tokens, Layout layout) {
  if (layout == Layout::separate && !tokens.empty()) tokens = tokens.subspan(1);
  return std::ranges::none_of(tokens, [](PackedToken token) { return token.trained(); });
}

void count_oddities(DataReport& report, std::int64_t i, std::uint32_t oddities) {
  constexpr std::pair<Oddity, SampleKind> kinds[] = {
      {Oddity::empty_answer, SampleKind::empty_answer},
      {Oddity::no_end_of_turn, SampleKind::missing_end_of_turn},
      {Oddity::special_name, SampleKind::special_name},
      {Oddity::unknown_role, SampleKind::unknown_role},
      {Oddity::held_ends, SampleKind::held_ends},
      {Oddity::left_out_part, SampleKind::left_out_part},
      {Oddity::not_written, SampleKind::not_written}};
  for (const auto& [oddity, kind] : kinds) {
    if ((oddities & static_cast<std::uint32_t>(oddity)) != 0) report.of(kind).add(i);
  }
}

/// The beginning of a text, `length` tokens; its label stays behind it, if it has one.
void add_cut(std::span<const PackedToken> text, std::int64_t length, const DatasetOptions& options,
             std::vector<PackedToken>& cut) {
  const auto begin = text.first(static_cast<std::size_t>(std::min(length, std::ssize(text))));
  cut.insert(cut.end(), begin.begin(), begin.end());
  if (options.num_labels > 0) cut.back() = text.back();
}

/// The beginning of a sample; of two texts each has half of the room, and what the other leaves.
std::vector<PackedToken> cut_to(std::span<const PackedToken> tokens,
                                const DatasetOptions& options) {
  std::vector<PackedToken> cut;
  if (!options.has_pairs) {
    add_cut(tokens, options.max_seq_length, options, cut);
    return cut;
  }
  const auto label =
      std::ranges::find_if(tokens, [](PackedToken token) { return token.trained(); });
  const auto first = tokens.first(static_cast<std::size_t>(label - tokens.begin()) + 1);
  const auto second = tokens.subspan(first.size());
  const std::int64_t room = std::max<std::int64_t>(options.max_seq_length, 4);
  const std::int64_t of_first =
      std::min(std::ssize(first), std::max(room / 2, room - std::ssize(second)));
  add_cut(first, of_first, options, cut);
  add_cut(second, room - of_first, options, cut);
  return cut;
}

/// Counts the answers in `kept`, the beginning of a sample, and what ends them.
void count_answers(Part& part, std::span<const TrainedAnswer> answers,
                   std::span<const PackedToken> kept, std::span<const std::int32_t> model_ends) {
  DataReport& report = part.report;
  for (const TrainedAnswer& answer : answers) {
    if (answer.begin >= std::ssize(kept)) return;
    ++report.num_answers;
    const bool is_cut = answer.ends_behind > std::ssize(kept);
    std::set<std::int32_t> ids;
    for (std::int64_t k = answer.ends_at; !is_cut && k < answer.ends_behind; ++k)
      ids.insert(kept[static_cast<std::size_t>(k)].id());
    for (const std::int32_t id : ids)
      ++part.ends[id];
    if (ids.empty()) ++report.num_open;
    const auto stops = [&](std::int32_t id) { return ids.contains(id); };
    const bool is_last = &answer == &answers.back() && !is_cut;
    if (is_last && std::ranges::none_of(model_ends, stops)) ++report.num_unstopped;
  }
}

/// Makes sample `i`, of which `tokens` are kept, the one that is shown.
void show_example(DataReport& report, const SampleSource& source, std::int64_t i,
                  std::span<const PackedToken> tokens, std::int64_t num_lost) {
  const std::vector<Turn> turns = source.turns(i);
  report.example = i;
  report.example_has_turns = !turns.empty();
  report.example_text =
      turns.empty() ? show(source, tokens) : show_turns(source, tokens, turns, num_lost);
  report.example_place = source.where(i);
  report.example_file = -1;
  const auto files = source.files();
  for (std::size_t f = 0; f < files.size() && report.example_file < 0; ++f) {
    const std::string name = files[f].string();
    if (!report.example_place.starts_with(name + ":")) continue;
    report.example_file = static_cast<std::int64_t>(f);
    report.example_place.erase(0, name.size());
  }
}

void add(Part& part, const SampleSource& source, std::int64_t i, const Made& made, Layout layout,
         const DatasetOptions& options, std::span<const std::int32_t> model_ends) {
  DataReport& report = part.report;
  std::span<const PackedToken> tokens = made.tokens;
  const std::int64_t length = std::ssize(tokens);
  ++report.num_read;
  report.longest = std::max(report.longest, length);
  ++report.lengths[static_cast<std::size_t>(
      std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(length))) - 1))];
  count_oddities(report, i, made.oddities);
  part.digests.append(made.digest);
  std::vector<PackedToken> cut;
  const bool overlong = layout == Layout::separate && length > options.max_seq_length;
  if (overlong) {
    report.of(SampleKind::overlong).add(i);
    if (options.on_overlong != OnOverlong::truncate) {
      ++report.num_dropped;
      return;
    }
    cut = cut_to(tokens, options);
    tokens = cut;
  }
  if (is_masked(tokens, layout)) {
    report.of(SampleKind::masked).add(i);
    ++report.num_dropped;
    return;
  }
  if (overlong) {
    report.of(SampleKind::truncated).add(i);
    report.tokens_lost += length - std::ssize(tokens);
  }
  const bool ends = (made.oddities & static_cast<std::uint32_t>(Oddity::no_end_of_turn)) == 0;
  if (!overlong && ends) ++report.eos_trained;
  count_answers(part, made.answers, tokens, model_ends);
  const bool is_whole_dialogue = made.has_turns && !overlong;
  if (report.example < 0 || (is_whole_dialogue && !part.has_dialogue)) {
    part.has_dialogue = is_whole_dialogue;
    show_example(report, source, i, tokens, length - std::ssize(tokens));
  }
  part.tokens.append(tokens);
  part.lengths.append(std::ssize(tokens));
}

/// Samples from i on: few at a time, as a sample may be a whole book.
std::vector<Made> make_some(const SampleSource& source, std::int64_t i, std::int64_t end,
                            const DatasetOptions& options, int num_threads) {
  const std::int64_t at_once = num_threads > 1 ? 16 * num_threads : 1;
  std::vector<Made> made(static_cast<std::size_t>(std::min(at_once, end - i)));
  make_all(source, i, made, options, num_threads);
  return made;
}

}  // namespace

PartOutcome tokenise_part(const SampleSource& source, Share samples, Layout layout,
                          const DatasetOptions& options, Part part, const PartWork& work) {
  PartOutcome outcome{.part = std::move(part)};
  UnfinishedWriter kept(work.target, work.keep_after_tokens);
  std::int64_t units = 0;
  const auto leaves = [&] {
    return work.leave.after_unit && ++units < work.num_units &&
           work.leave.after_unit(outcome.error != nullptr);
  };
  try {
    const std::vector<std::int32_t> model_ends = source.model_ends();
    for (const std::int32_t id : model_ends)
      outcome.part.ends.emplace(id, 0);
    UnfinishedReader known =
        work.target.empty() ? UnfinishedReader() : UnfinishedReader(work.target, samples);
    for (std::int64_t i = samples.first; i < samples.last && !outcome.is_left;) {
      std::vector<Made> made = known.take(i, samples.last, options);
      const bool is_known = !made.empty();
      if (!is_known)
        made = make_some(source, i, std::min(samples.last, known.next(i).value_or(samples.last)),
                         options, work.num_threads);
      for (std::size_t k = 0; k < made.size(); ++k) {
        if (made[k].error) std::rethrow_exception(made[k].error);
        add(outcome.part, source, i + static_cast<std::int64_t>(k), made[k], layout, options,
            model_ends);
      }
      if (is_known)
        outcome.num_known += std::ssize(made);
      else
        kept.add(i, made);
      const std::int64_t before = (i - samples.first) / samples_per_unit;
      i += std::ssize(made);
      for (std::int64_t u = before; u < (i - samples.first) / samples_per_unit; ++u) {
        core::fault::hit("tokenise.unit");
        outcome.is_left = outcome.is_left || leaves();
      }
    }
  } catch (...) {
    outcome.error = std::current_exception();
  }
  // Ranks leave together: who is done, or cannot go on, says so until all know.
  while (work.leave.after_unit && !outcome.is_left && units + 1 < work.num_units)
    outcome.is_left = leaves();
  if (outcome.is_left) kept.flush();
  outcome.num_kept = outcome.num_known + kept.num_kept();
  return outcome;
}

}  // namespace finetune::data
