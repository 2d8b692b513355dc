// SPDX-License-Identifier: Apache-2.0
#include "data/settings.hpp"

#include <utility>

namespace finetune::data {
namespace {

using deck::Restart;

void bind_sources(deck::Table& table, DataSettings& data, const std::vector<std::string>& formats) {
  // Paths may change on restart: whether the data did is told by their fingerprint.
  table.text({.name = "path",
              .restart = Restart::free,
              .sentence = "Training data: a file, or a folder of files.",
              .required = true},
             data.path);
  table.choice({.name = "format", .restart = Restart::fixed, .sentence = "What the files hold."},
               data.format, formats);
  table.text({.name = "validation_path",
              .restart = Restart::free,
              .sentence = "Validation data of the same format; empty for none."},
             data.validation_path);
  table.real({.name = "validation_fraction",
              .restart = Restart::fixed,
              .sentence = "Part of the training data that is held out for validation instead; the "
                          "choice follows train.seed."},
             data.validation_fraction, {.min = 0.0, .below = 1.0});
}

void bind_sequences(deck::Table& table, DataSettings& data) {
  table.integer({.name = "max_seq_length",
                 .restart = Restart::fixed,
                 .sentence = "Longest sequence the model is given.",
                 .unit = "tokens"},
                data.max_seq_length, {.min = 2});
  table.choice({.name = "on_overlong",
                .restart = Restart::fixed,
                .sentence = "What to do with a sample longer than max_seq_length: cut off its end, "
                            "leave it out, or stop."},
               data.on_overlong, {"truncate", "drop", "error"});
  table.choice({.name = "on_masked",
                .restart = Restart::fixed,
                .sentence = "What to do with a sample of which no token is trained: stop, or leave "
                            "it out."},
               data.on_masked, {"error", "drop"});
  table.boolean({.name = "shuffle",
                 .restart = Restart::fixed,
                 .sentence = "Draw the samples of each epoch in an order of its own."},
                data.shuffle);
  table.boolean({.name = "allow_changed",
                 .restart = Restart::free,
                 .sentence = "Go on from a checkpoint although the training data are not those it "
                             "was trained on; otherwise that is an error."},
                data.allow_changed);
}

}  // namespace

void DataSettings::bind(deck::Table& table, const std::vector<std::string>& formats) {
  bind_sources(table, *this, formats);
  bind_sequences(table, *this);
  if (validation_fraction > 0 && !validation_path.empty()) {
    table.problem("validation_fraction", "data.validation_path is given too",
                  "validation data come from one of the two", "Remove one.");
  }
}

DatasetOptions DataSettings::options(std::string name, std::int64_t vocab_size) const {
  DatasetOptions options;
  options.name = std::move(name);
  options.max_seq_length = max_seq_length;
  options.vocab_size = vocab_size;
  options.on_overlong = on_overlong == "truncate" ? OnOverlong::truncate
                        : on_overlong == "drop"   ? OnOverlong::drop
                                                  : OnOverlong::error;
  options.on_masked = on_masked == "drop" ? OnMasked::drop : OnMasked::error;
  return options;
}

}  // namespace finetune::data
