// SPDX-License-Identifier: Apache-2.0
#include "train/corpus/corpus.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/steps/split.hpp"
#include "data/tokens/mask_change.hpp"
#include "train/corpus/detail/labels.hpp"
#include "train/run/advice.hpp"

namespace finetune::train {
namespace {

/// The share of padding over an epoch, from at most so many steps spread over it.
double estimate_padding(const data::Stream& stream) {
  constexpr std::int64_t most_steps = 256;
  const std::int64_t steps = stream.sampler().steps_per_epoch();
  const std::int64_t count = std::min(steps, most_steps);
  data::StepData sum;
  for (std::int64_t k = 0; k < count; ++k) {
    const data::StepData step = stream.counts(k * steps / count);
    sum.num_positions += step.num_positions;
    sum.num_padding += step.num_padding;
  }
  return sum.padding();
}

/// Positions that samples fill, as a part of those that their sequences have room for.
double packing_efficiency(const data::Sequences& sequences, std::int64_t capacity) {
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < sequences.size(); ++i)
    used += sequences.positions(i);
  return static_cast<double>(used) / static_cast<double>(sequences.size() * capacity);
}

void tell_set(const DataInput& input, const data::Loaded& set, const core::Json& more,
              Corpus& corpus) {
  const model::Outputs& outputs = input.architecture.outputs;
  const std::string labels =
      outputs.are_of_texts() ? label_counts(set.dataset, outputs, input.labels) : "";
  log::info(data::to_string(set.report, set.name, input.settings.max_seq_length, labels));
  if (const auto advice = advice_on_cuts(set.report, set.name, input.settings.max_seq_length))
    log::warn(*advice);
  log::info(fmt::format("  {} in {:.2f} s",
                        set.was_cached           ? "mapped from " + set.cache_file.string()
                        : set.cache_file.empty() ? "tokenised into memory"
                                                 : "tokenised into " + set.cache_file.string(),
                        set.load_s));
  core::Json fields = more;
  fields["load_s"] = set.load_s;
  fields["was_cached"] = set.was_cached;
  // A label follows no token that ends a text.
  if (outputs.are_of_texts()) fields["eos_trained"] = nullptr;
  corpus.records.push_back(data::to_record(set.report, set.name, fields));
}

/// The data report, on the log and as rows of metrics.jsonl.
void tell(const DataInput& input, const DataSets& sets, Corpus& corpus) {
  const double padding = estimate_padding(corpus.training);
  core::Json more = {{"padding", padding}};
  std::string text = fmt::format("  padding of an epoch's micro-batches: {:.1f} %", 100 * padding);
  const data::Sequences& sequences = corpus.training.sequences();
  if (input.settings.packing) {
    const double efficiency = packing_efficiency(sequences, input.settings.max_seq_length);
    more["packing_efficiency"] = efficiency;
    more["sequences"] = sequences.size();
    text += fmt::format("; {} samples packed into {} sequences, {:.1f} % full",
                        core::with_commas(sequences.dataset().num_samples()),
                        core::with_commas(sequences.size()), 100 * efficiency);
  }
  for (const data::Loaded& set : sets.training)
    tell_set(input, set, more, corpus);
  log::info(text);
  for (const data::Loaded& set : sets.validation)
    tell_set(input, set, core::Json::object(), corpus);
  if (sets.validation.empty() && corpus.validation) {
    const std::int64_t count = corpus.validation->dataset().num_samples();
    log::info(fmt::format("  of these samples {} {} held out for validation",
                          core::with_commas(count), count == 1 ? "is" : "are"));
  }
}

/// One data set of several says which.
std::string name_of(const char* part, std::size_t i, const std::vector<std::string>& paths) {
  return paths.size() == 1 ? part : fmt::format("{} {} ({})", part, i + 1, paths[i]);
}

data::DatasetOptions options_of(const DataInput& input, std::string name) {
  data::DatasetOptions options =
      input.settings.options(std::move(name), input.architecture.vocab_size);
  if (input.architecture.outputs.are_of_texts())
    options.num_labels = model::num_label_codes(input.architecture.outputs);
  options.has_pairs = input.architecture.outputs.kind == model::HeadKind::reward;
  return options;
}

std::vector<data::Loaded> load_all(const DataInput& input, const data::DataRanks& ranks,
                                   const std::vector<std::unique_ptr<data::TextSource>>& sources,
                                   const char* part, const std::vector<std::string>& paths,
                                   const data::CacheOptions& cache, int num_threads) {
  std::vector<data::Loaded> loaded;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto options = options_of(input, name_of(part, i, paths));
    loaded.push_back(
        data::load(ranks, *sources[i], sources[i]->layout(), options, cache, num_threads));
  }
  return loaded;
}

/// Samples that are questions with answers may share a sequence; running text fills them anyway.
data::Sequences sequences_of(const DataInput& input, const data::Loaded& set,
                             data::Dataset dataset) {
  if (!input.settings.packing || set.layout == data::Layout::continuous)
    return data::Sequences(std::move(dataset));
  return data::Sequences::packed(std::move(dataset), input.settings.max_seq_length,
                                 at::get_num_threads());
}

/// Training data and what they were loaded from.
struct KnownData {
  std::vector<data::Loaded> sets;
  std::function<std::unique_ptr<data::TextSource>(std::size_t)> open;
  std::filesystem::path cache_folder;
};

/// One fingerprint of several data sets, `own` of each, with `other` in the place of the i-th.
std::string joined_fingerprint(const std::vector<data::Loaded>& sets,
                               std::string data::Loaded::*own, std::size_t i = 0,
                               const std::string* other = nullptr) {
  std::string all;
  for (std::size_t k = 0; k < sets.size(); ++k)
    all += other != nullptr && k == i ? *other : sets[k].*own;
  return core::fingerprint(all);
}

/// See Corpus::change_since. Of several data sets one may have changed.
DataChange change_since(const KnownData& known, const std::string& fingerprint) {
  for (std::size_t i = 0; i < known.sets.size(); ++i) {
    const auto is_earlier = [&](const std::string& one) {
      return joined_fingerprint(known.sets, &data::Loaded::fingerprint, i, &one) == fingerprint;
    };
    const auto change = data::find_mask_change(known.cache_folder, is_earlier, known.sets[i],
                                               [&] { return known.open(i); });
    if (change) return {change->has_same_tokens, change->shown};
  }
  // A conversation, if there is one.
  auto shown = std::ranges::find_if(
      known.sets, [](const data::Loaded& set) { return set.report.example_has_turns; });
  if (shown == known.sets.end()) shown = known.sets.begin();
  const std::string example = data::example_of(shown->report, std::string(4, ' '));
  return {std::nullopt, example.empty() ? "" : "    As it is read now:\n" + example};
}

/// What training draws from, and what is held out of it.
struct DrawnData {
  std::vector<data::Sequences> training;
  std::vector<data::SampledSet> sampled;
  std::vector<data::Sequences> held_out;
};

DrawnData draw(const DataInput& input, const DataSets& sets) {
  DrawnData drawn;
  for (std::size_t i = 0; i < sets.training.size(); ++i) {
    const data::Loaded& set = sets.training[i];
    data::Dataset dataset = set.dataset;
    if (sets.validation.empty() && input.settings.validation_fraction > 0) {
      data::Split split = data::split(dataset, input.settings.validation_fraction, input.seed);
      dataset = std::move(split.training);
      drawn.held_out.push_back(sequences_of(input, set, std::move(split.validation)));
    }
    drawn.training.push_back(sequences_of(input, set, std::move(dataset)));
    const double weight = input.settings.weights.empty() ? 1 : input.settings.weights.at(i);
    drawn.sampled.push_back({drawn.training.back().size(), weight});
  }
  for (const data::Loaded& set : sets.validation)
    drawn.held_out.push_back(sequences_of(input, set, set.dataset));
  return drawn;
}

/// The model's tokenizer. Where all data are ids it may be missing, or one that cannot be read.
tokenizer::Tokenizer load_tokenizer(const DataInput& input, bool data_are_tokens) {
  try {
    tokenizer::Tokenizer loaded = tokenizer::Tokenizer::load(input.model_folder);
    require_vocabulary(loaded, input.architecture);
    if (!data_are_tokens) (void)loaded.eos_id();  // throws if there is none
    return loaded;
  } catch (const core::Error& error) {
    if (!data_are_tokens || error.kind() != core::ErrorKind::input) throw;
    log::info(
        fmt::format("no tokenizer: the data are token ids, which are compared with the "
                    "vocabulary of config.json (0 to {}) and shown as numbers ({})",
                    input.architecture.vocab_size - 1, error.what()));
  }
  return tokenizer::Tokenizer::of_ids(input.model_folder, input.architecture.vocab_size);
}

}  // namespace

void require_vocabulary(const tokenizer::Tokenizer& tokenizer,
                        const model::Architecture& architecture) {
  if (tokenizer.vocab_size() <= architecture.vocab_size) return;
  core::fail(core::ErrorKind::input, {tokenizer.file().string(),
                                      fmt::format("has {} tokens, the model's embedding {} rows",
                                                  core::with_commas(tokenizer.vocab_size()),
                                                  core::with_commas(architecture.vocab_size)),
                                      "a token without a row cannot be read",
                                      "Use the tokenizer the model was published with."});
}

data::CacheOptions cache_options(const data::DataSettings& settings,
                                 const std::filesystem::path& output) {
  data::CacheOptions options;
  if (!settings.cache) return options;
  options.folder = settings.cache_dir;
  if (!options.folder.empty()) return options;
  // Beside the output and not in it: the next run has another output and the same data.
  options.folder = (output / "").lexically_normal().parent_path().parent_path() / "token-cache";
  return options;
}

DataSets load_data(const DataInput& input, const Registry& registry, const data::DataRanks& ranks,
                   const data::CacheOptions& cache, int num_threads) {
  const DataFormats formats = find_formats(ranks.world, input, registry);
  const bool are_tokens = formats.are_tokens(registry);
  tokenizer::Tokenizer tokenizer =
      comm::agree(ranks.world, [&] { return load_tokenizer(input, are_tokens); });
  DataSets sets{.tokenizer = std::move(tokenizer),
                .training = {},
                .validation = {},
                .has_answers = true,
                .questions = nullptr,
                .open = {},
                .cache_folder = cache.folder};
  sets.open = [=, tokenizer = sets.tokenizer, &registry](std::size_t i) {
    return open_source(input, registry, tokenizer, formats, DataPart::training, i);
  };
  const auto open = [&](DataPart part) {
    return comm::agree(
        ranks.world, [&] { return open_sources(input, registry, sets.tokenizer, formats, part); });
  };
  const auto sources = open(DataPart::training);
  sets.training =
      load_all(input, ranks, sources, "training data", input.settings.paths, cache, num_threads);
  if (!input.settings.validation_paths.empty()) {
    auto held_out = open(DataPart::validation);
    sets.validation = load_all(input, ranks, held_out, "validation data",
                               input.settings.validation_paths, cache, num_threads);
    sets.questions = std::make_unique<Questions>(std::move(held_out));
  }
  for (const auto* loaded : {&sets.training, &sets.validation}) {
    for (const data::Loaded& set : *loaded)
      sets.has_answers = sets.has_answers && set.layout == data::Layout::separate;
  }
  // Nobody asks for a number to the last digit, and no text goes on with a label.
  if (input.architecture.outputs.kind == model::HeadKind::value) sets.has_answers = false;
  if (input.architecture.outputs.are_of_texts()) sets.questions.reset();
  if (!sets.has_answers || sets.tokenizer.has_ids_only()) sets.questions.reset();
  return sets;
}

Corpus make_corpus(const DataInput& input, DataSets sets, const plan::BatchPlan& plan,
                   std::int64_t batch_size, std::int64_t batch_rank) {
  const data::MicroBatchGrid grid{plan.micro_batch, batch_size, batch_rank};
  core::check(grid.num_micro_steps(plan.global_batch) == plan.accumulation,
              "the stream cuts a step as the plan says");
  // Nobody looks at padding: any id will do.
  const std::int64_t pad_id = sets.tokenizer.find_eos_id().value_or(0);
  const DrawnData drawn = draw(input, sets);
  const auto texts = input.architecture.outputs.kind == model::HeadKind::reward
                         ? data::SampleTexts::two
                         : data::SampleTexts::one;
  data::Sampler sampler(drawn.sampled, plan.global_batch, input.seed, input.settings.order(),
                        input.settings.shuffle_block);
  Corpus corpus{
      std::move(sets.tokenizer),
      data::Stream(data::Sequences::join(drawn.training), std::move(sampler), grid, pad_id, texts),
      std::nullopt,
      joined_fingerprint(sets.training, &data::Loaded::fingerprint),
      joined_fingerprint(sets.training, &data::Loaded::ids_fingerprint),
      sets.has_answers,
      std::move(sets.questions),
      {},
      {}};
  if (!drawn.held_out.empty()) {
    // Sorted as a whole, so that what is in a micro-batch does not depend on the number of ranks.
    auto sequences = data::Sequences::join(drawn.held_out).by_length();
    // Every rank gets one micro-batch a step: the fewest gathers of weights.
    data::Sampler in_order(sequences.size(), plan.micro_batch * batch_size, input.seed,
                           data::SampleOrder::as_read);
    corpus.validation.emplace(std::move(sequences), std::move(in_order), grid, pad_id, texts);
  }
  tell(input, sets, corpus);
  corpus.change_since =
      [known =
           KnownData{std::move(sets.training), std::move(sets.open), std::move(sets.cache_folder)}](
          const std::string& fingerprint) { return change_since(known, fingerprint); };
  if (const auto advice = advice_on_epoch(plan.global_batch, corpus.training.sampler().epoch_size(),
                                          input.deck_path))
    log::warn(*advice);
  return corpus;
}

Corpus load_corpus(const DataInput& input, const Registry& registry,
                   const data::CacheOptions& cache, const plan::BatchPlan& plan,
                   const world::World& world, comm::Leave leave) {
  DataSets sets = load_data(input, registry, {world.world, world.node, std::move(leave)}, cache,
                            at::get_num_threads());
  return comm::agree(world.world, [&] {
    return make_corpus(input, std::move(sets), plan, world.batch.size(), world.batch.rank());
  });
}

}  // namespace finetune::train
