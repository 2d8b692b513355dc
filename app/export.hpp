#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the kinds of export have in common.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load/find.hpp"
#include "cli.hpp"
#include "train/input/registry.hpp"
#include "weights/export_folder.hpp"
#include "weights/model_files.hpp"

namespace finetune::app {

/// What is exported, and from where.
struct ExportJob {
  const Arguments& arguments;
  const train::Registry& registry;
  checkpoint::FoundCheckpoint found;
  std::filesystem::path model_folder;  ///< of the model the run began with

  bool is_adapter() const { return found.state.adapter.has_value(); }
  /// Of a tensor that was trained, the weights to export: fp32, elements from `first` on.
  void read_trained(std::string_view name, std::int64_t first, std::span<float> piece) const;
  /// Name of the file of hashes; empty: none.
  std::string sums() const;
};

/// Of the command line's --dtype. It is one of the words that the command line allows.
core::DType dtype_of(const std::string& word);

/// config.json of the model's folder; null without one.
core::Json config_of(const std::filesystem::path& model_folder);

/// What lies next to the weights of a whole model and is not a copy: the card, and what says more
/// than the source did. `config` is its config.json, to which --dtype is applied; it is written if
/// it `changed`.
std::map<std::string, std::string> texts_of(const ExportJob& job, core::Json config, bool changed);

/// Adds README.md and the picture that it shows. `library` loads the model.
void add_card(const ExportJob& job, const std::string& base_model, const std::string& library,
              std::map<std::string, std::string>& texts);

/// Adds the chat template that the run's deck named, if it is not the model's own: as
/// chat_template.jinja, and beside a whole model in its tokenizer_config.json; the token that ends
/// an answer goes to generation_config.json. data.template_kwargs become its defaults, or those of
/// the model's own templates.
void add_chat_template(const ExportJob& job, bool is_whole_model,
                       std::map<std::string, std::string>& texts);

/// Tensors of the source model that are of parts which were not trained, if it has such parts.
std::vector<weights::TensorSpec> foreign_tensors(const std::vector<std::string>& prefixes,
                                                 const weights::ModelFiles& files);

/// Elements of a tensor of `files`, as fp32.
void read_piece(const weights::ModelFiles& files, std::string_view name, std::int64_t first,
                std::span<float> piece);

/// "wrote OUT from CHECKPOINT: 14 tensors, 3.2 GiB".
void tell_written(const ExportJob& job, const weights::ExportPlan& plan);

/// Whether what is asked for is made of a model's folder: GGUF and FP8.
bool is_by_way(const Arguments& arguments);
/// Writes it, of a model folder, or of a run by way of such a folder, which is gone afterwards.
/// Throws: as run_export, run_quantize and export_gguf.
int export_by_way(const Arguments& arguments, const train::Registry& registry);

/// Whether a name asks for one file that llama.cpp reads.
bool is_gguf(const std::string& file);

struct GgufFile {
  std::filesystem::path file;
  std::string dtype;      ///< of matrices: f16 (also ""), bf16, f32 or q8_0; all else is f32
  std::string name = {};  ///< of the model; empty: that of its folder
};
/// Throws: ErrorKind::create if the file is there already, ErrorKind::command_line for another
/// dtype.
void require_new(const GgufFile& out);
/// A model folder as such a file, with tokenizer and chat template. Throws: ErrorKind::input for
/// models and tokenizers that it cannot say; ErrorKind::create.
void export_gguf(const std::filesystem::path& folder, const GgufFile& out,
                 const train::Registry& registry);

/// The adapter of a run as a PEFT folder. Throws: core::Error.
void export_adapter(const ExportJob& job);

/// The model with the adapter in its weights. Throws: core::Error.
void export_merged(const ExportJob& job);

}  // namespace finetune::app
