// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "data/tokens/detail/show.hpp"

namespace finetune::data {
namespace {

/// A sample as read, in the form in which it is kept.
struct Made {
  std::vector<PackedToken> tokens;
  core::Digest digest = {};
  std::uint32_t oddities = 0;
  std::vector<TrainedAnswer> answers = {};
  bool has_turns = false;
  std::exception_ptr error;
};

void check_ids(const SampleSource& source, std::int64_t i, const Tokens& tokens,
               const DatasetOptions& options) {
  const std::int64_t vocab_size = options.vocab_size;
  const auto outside = [&](std::int32_t id) { return id < 0 || id >= vocab_size; };
  auto bad = tokens.ids.begin();
  for (; bad != tokens.ids.end(); ++bad) {
    const bool is_label =
        options.num_labels > 0 &&
        tokens.labels[static_cast<std::size_t>(bad - tokens.ids.begin())] != not_trained;
    if (!is_label && outside(*bad)) break;
  }
  if (bad == tokens.ids.end()) return;
  core::fail(core::ErrorKind::input,
             {source.where(i), fmt::format("holds the token id {}", *bad),
              fmt::format("the model's vocabulary has {} entries, ids 0 to {}", vocab_size,
                          vocab_size - 1),
              "Use the tokenizer that belongs to the model."});
}

Made make(const SampleSource& source, std::int64_t i, const DatasetOptions& options) {
  Made made;
  try {
    SourceSample sample = source.sample(i);
    const Tokens& tokens = sample.tokens;
    core::check(tokens.ids.size() == tokens.labels.size(), "every token has a label");
    check_ids(source, i, tokens, options);
    made.tokens.reserve(tokens.ids.size());
    for (std::size_t l = 0; l < tokens.ids.size(); ++l)
      made.tokens.emplace_back(tokens.ids[l], tokens.labels[l] != not_trained);
    made.digest = core::digest(std::as_bytes(std::span(made.tokens)));
    made.oddities = sample.oddities;
    made.answers = std::move(sample.answers);
    made.has_turns = sample.has_turns;
  } catch (...) {
    made.error = std::current_exception();
  }
  return made;
}

/// Samples [begin, begin + made.size()), by as many threads as there are.
void make_all(const SampleSource& source, std::int64_t begin, std::span<Made> made,
              const DatasetOptions& options, int num_threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t k = next++; k < made.size(); k = next++)
      made[k] = make(source, begin + static_cast<std::int64_t>(k), options);
  };
  std::vector<std::jthread> threads;
  for (int t = 1; t < num_threads && static_cast<std::size_t>(t) < made.size(); ++t)
    threads.emplace_back(work);
  work();
}

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

}  // namespace

Part tokenise_part(const SampleSource& source, std::int64_t begin, std::int64_t end, Layout layout,
                   const DatasetOptions& options, Part part, int num_threads) {
  // Few at a time: a sample may be a whole book.
  const std::int64_t at_once = num_threads > 1 ? 16 * num_threads : 1;
  const std::vector<std::int32_t> model_ends = source.model_ends();
  for (const std::int32_t id : model_ends)
    part.ends.emplace(id, 0);
  std::vector<Made> made(
      static_cast<std::size_t>(std::min(at_once, std::max<std::int64_t>(0, end - begin))));
  for (; begin < end; begin += at_once) {
    const auto some =
        std::span(made).first(static_cast<std::size_t>(std::min(at_once, end - begin)));
    make_all(source, begin, some, options, num_threads);
    for (std::size_t k = 0; k < some.size(); ++k) {
      if (some[k].error) std::rethrow_exception(some[k].error);
      add(part, source, begin + static_cast<std::int64_t>(k), some[k], layout, options, model_ends);
      some[k] = {};
    }
  }
  return part;
}

}  // namespace finetune::data
