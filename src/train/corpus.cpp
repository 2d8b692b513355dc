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

/// The file or folder that the deck names as data.<key>.
std::filesystem::path find_data(const Input& input, const char* key, const std::string& named) {
  const std::filesystem::path path = resolve(named, input.deck_path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  core::fail(core::ErrorKind::input,
             {named, "is not there",
              path.is_absolute() ? fmt::format("data.{} names it", key)
                                 : fmt::format("data.{} is looked for from the current folder and "
                                               "beside the deck {}",
                                               key, input.deck_path.string()),
              fmt::format("Correct data.{}.", key)});
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
  const data::Format& format = format_of(input, registry);
  data::Tokenizer tokenizer = comm::agree(world.world, [&] {
    data::Tokenizer loaded = data::Tokenizer::load(input.model_folder);
    require_vocabulary(loaded, input.architecture);
    return loaded;
  });
  const data::Encoder encoder =
      comm::agree(world.world, [&] { return data::encoder_of(tokenizer); });
  const auto open = [&](const char* key, const std::string& path) {
    return comm::agree(world.world, [&] { return format.open(find_data(input, key, path)); });
  };

  std::unique_ptr<data::Reader> reader = open("path", input.data.path);
  data::Dataset training =
      load_part(input, *reader, format.layout, encoder, world, "training data");
  std::optional<data::Dataset> validation;
  std::unique_ptr<data::Reader> questions;
  if (!input.data.validation_path.empty()) {
    questions = open("validation_path", input.data.validation_path);
    validation = load_part(input, *questions, format.layout, encoder, world, "validation data");
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
