#pragma once
// SPDX-License-Identifier: Apache-2.0
// The table [data].

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/steps/detail/sampler.hpp"
#include "data/text/format.hpp"
#include "data/tokens/detail/options.hpp"
#include "deck/deck.hpp"

namespace finetune::data {

struct DataSettings {
  std::vector<std::string> paths;
  std::vector<std::string> formats = {"auto"};  ///< one for all paths, or one for each
  std::string split = "train";                  ///< of folders among the paths
  std::string subset;                           ///< of folders that hold several data sets
  std::vector<double> weights;                  ///< one for each path, or none
  std::vector<std::string> validation_paths;
  std::string validation_split = "validation";
  Columns columns;
  std::string chat_template = "auto";
  std::string model_template;  ///< of those that the model has; empty: its default
  TrainOn train_on = TrainOn::answers;
  SpecialNameMeaning special_names = SpecialNameMeaning::text;
  double validation_fraction = 0;
  std::int64_t max_seq_length = 512;
  OnOverlong on_overlong = OnOverlong::truncate;
  OnMasked on_masked = OnMasked::error;
  bool packing = false;
  bool shuffle = true;
  std::int64_t shuffle_block = 0;
  bool allow_changed = false;
  bool cache = true;
  std::string cache_dir;
  Limits limits;

  /// data.format may be one of `known_formats`, data.template one of `template_names`.
  void bind(deck::Table& table, std::span<const Format> known_formats,
            const std::vector<std::string>& template_names = {});

  /// The format of paths[i] and of validation_paths[i], or auto_format.
  const std::string& format_of(std::size_t i) const {
    return formats.size() == 1 ? formats.front() : formats.at(i);
  }

  /// What `load` needs of these settings. `name` begins the data report: "training data".
  DatasetOptions options(std::string name, std::int64_t vocab_size) const;

  SampleOrder order() const { return shuffle ? SampleOrder::shuffled : SampleOrder::as_read; }
};

}  // namespace finetune::data
