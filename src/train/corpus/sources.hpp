#pragma once
// SPDX-License-Identifier: Apache-2.0
// The data sets that the deck names, opened.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data/settings.hpp"
#include "data/text/chat_template.hpp"
#include "data/text/text_source.hpp"
#include "model/architecture.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/input/registry.hpp"

namespace finetune::train {

struct Input;

/// What the data of a run are read and cut by.
struct DataInput {
  const data::DataSettings& settings;
  const std::filesystem::path& deck_path;     ///< files are looked for next to it too
  const std::filesystem::path& model_folder;  ///< has tokenizer and chat template
  const model::Architecture& architecture;
  std::uint64_t seed = 0;                  ///< of the run
  const std::vector<std::string>& labels;  ///< names, of architecture.outputs
};
DataInput data_input(const Input& input);

enum class DataPart { training, validation };

/// Of data.path, or of data.validation_path.
std::size_t num_paths(const DataInput& input, DataPart part);

/// Looks whether the i-th of them is there, without opening it. Throws: ErrorKind::input.
void require_path(const DataInput& input, DataPart part, std::size_t i);

/// What the formats of the data are, where the deck leaves that to the files.
struct DataFormats {
  std::vector<std::string> training;                     ///< of each of data.path
  std::vector<std::string> validation;                   ///< of each of data.validation_path
  std::vector<std::shared_ptr<const void>> opened = {};  ///< keep it until the sources are open

  std::vector<std::string> all() const;

  /// Whether all data are token ids, so that no tokenizer is needed.
  bool are_tokens(const Registry& registry) const;
};

/// Only the root looks into the files; everybody gets its answer. Says on the log what was found.
/// Collective on `world`. Throws: comm::AgreedError of ErrorKind::input; see data::detect_format.
DataFormats find_formats(const comm::Communicator& world, const DataInput& input,
                         const Registry& registry);

/// Opens the files of data.path or data.validation_path, in the order of the deck.
/// Throws: ErrorKind::input for a path that is not there, a file that cannot be read, a folder
/// whose training data are not clear, a model without a known chat template where one is needed.
std::vector<std::unique_ptr<data::TextSource>> open_sources(const DataInput& input,
                                                            const Registry& registry,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            const DataFormats& formats,
                                                            DataPart part);

/// The i-th of them alone, without a word on the log.
std::unique_ptr<data::TextSource> open_source(const DataInput& input, const Registry& registry,
                                              const tokenizer::Tokenizer& tokenizer,
                                              const DataFormats& formats, DataPart part,
                                              std::size_t i);

/// The template that conversations of this run are rendered by: the one of data.template, or the
/// model's. Throws: see data::choose_template.
data::ChatTemplate chat_template_of(const DataInput& input, const Registry& registry,
                                    const tokenizer::Tokenizer& tokenizer);

/// Validation samples as questions with answers.
class Questions {
 public:
  explicit Questions(std::vector<std::unique_ptr<data::TextSource>> sources)
      : sources_(std::move(sources)) {}

  std::int64_t size() const;
  /// 0 <= i < size(). Nothing if the sample trains nothing.
  std::optional<data::Question> question(std::int64_t i) const;
  /// Tokens that end an answer.
  std::vector<std::int32_t> stop_ids() const;

 private:
  std::vector<std::unique_ptr<data::TextSource>> sources_;
};

}  // namespace finetune::train
