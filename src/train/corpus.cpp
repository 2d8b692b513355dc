// SPDX-License-Identifier: Apache-2.0
#include "train/corpus.hpp"

#include <fmt/format.h>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/encoder.hpp"
#include "data/load.hpp"

namespace finetune::train {
namespace {

data::Dataset load_part(const Input& input, const data::Reader& reader, data::Layout layout,
                        const data::Encoder& encoder, const world::World& world,
                        const std::string& name) {
  const data::DatasetOptions options = input.data.options(name, input.architecture.vocab_size);
  data::Loaded loaded = data::load(world.world, reader, layout, encoder, options);
  log::info(data::to_string(loaded.report, options));
  return std::move(loaded.dataset);
}

/// The samples of several sources one after the other, as tokens.
class Samples final : public data::Reader {
 public:
  explicit Samples(const std::vector<std::unique_ptr<data::TextSource>>& sources)
      : sources_(sources) {}

  std::int64_t size() const override {
    std::int64_t size = 0;
    for (const auto& source : sources_)
      size += source->size();
    return size;
  }

  data::Sample sample(std::int64_t i) const override {
    std::size_t s = 0;
    for (; i >= sources_[s]->size(); ++s)
      i -= sources_[s]->size();
    data::Sample sample;
    sample.where = sources_[s]->where(i);
    sample.tokens = sources_[s]->sample(i).tokens;
    return sample;
  }

 private:
  const std::vector<std::unique_ptr<data::TextSource>>& sources_;
};

/// What loading cannot do with several data sets.
void require_alike(const Input& input, const Registry& registry) {
  const auto layout = [&](std::size_t i) {
    return format_named(input.data.format_of(i), registry).layout;
  };
  for (std::size_t i = 1; i < input.data.paths.size(); ++i) {
    if (layout(i) == layout(0)) continue;
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(), "data.path holds running text and separate samples",
                "the one is cut into blocks, the other is not", "Train on one of them."});
  }
  if (!input.data.weights.empty()) {
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(), "data.weights is not supported yet",
                "each sample is drawn once an epoch", "Remove it."});
  }
}

}  // namespace

void require_vocabulary(const data::Tokenizer& tokenizer, const model::Architecture& architecture) {
  if (tokenizer.vocab_size() <= architecture.vocab_size) return;
  core::fail(core::ErrorKind::input, {tokenizer.file().string(),
                                      fmt::format("has {} tokens, the model's embedding {} rows",
                                                  core::with_commas(tokenizer.vocab_size()),
                                                  core::with_commas(architecture.vocab_size)),
                                      "a token without a row cannot be read",
                                      "Use the tokenizer the model was published with."});
}

Corpus load_corpus(const Input& input, const Registry& registry, const world::World& world) {
  const data::Format& format = format_named(input.data.format_of(0), registry);
  comm::agree_all(world.world, [&] { require_alike(input, registry); });
  data::Tokenizer tokenizer = comm::agree(world.world, [&] {
    data::Tokenizer loaded = data::Tokenizer::load(input.model_folder);
    require_vocabulary(loaded, input.architecture);
    return loaded;
  });
  const data::Encoder encoder =
      comm::agree(world.world, [&] { return data::encoder_of(tokenizer); });
  const auto open = [&](DataPart part) {
    return comm::agree(world.world, [&] { return open_sources(input, registry, tokenizer, part); });
  };

  const auto sources = open(DataPart::training);
  data::Dataset training =
      load_part(input, Samples(sources), format.layout, encoder, world, "training data");
  std::optional<data::Dataset> validation;
  std::unique_ptr<Questions> questions;
  if (!input.data.validation_paths.empty()) {
    auto held_out = open(DataPart::validation);
    validation =
        load_part(input, Samples(held_out), format.layout, encoder, world, "validation data");
    questions = std::make_unique<Questions>(std::move(held_out));
  } else if (input.data.validation_fraction > 0) {
    data::Split split = comm::agree(world.world, [&] {
      return data::split(training, input.data.validation_fraction,
                         static_cast<std::uint64_t>(input.train.seed));
    });
    training = std::move(split.training);
    validation = std::move(split.validation);
    log::info(fmt::format("of these sequences {} are held out for validation",
                          core::with_commas(validation->num_samples())));
  }
  const bool has_answers = format.layout == data::Layout::separate;
  if (!has_answers) questions.reset();

  const std::string fingerprint = training.fingerprint();
  const data::MicroBatchGrid grid{input.train.micro_batch, world.batch.size(), world.batch.rank()};
  const auto stream = [&](data::Dataset dataset, std::int64_t batch, data::Order order) {
    data::Sampler sampler(dataset.num_samples(), batch,
                          static_cast<std::uint64_t>(input.train.seed), order);
    return data::Stream(std::move(dataset), std::move(sampler), grid, encoder.eos_id);
  };
  Corpus corpus{std::move(tokenizer),
                stream(std::move(training), input.train.global_batch, input.data.order()),
                std::nullopt,
                fingerprint,
                has_answers,
                std::move(questions)};
  if (validation) {
    // Every rank gets one micro-batch a step: the fewest gathers of weights.
    corpus.validation = stream(std::move(*validation), input.train.micro_batch * world.batch.size(),
                               data::Order::as_read);
  }
  return corpus;
}

}  // namespace finetune::train
