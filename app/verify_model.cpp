// SPDX-License-Identifier: Apache-2.0
// Whether the folder of a model is complete, and what it says of itself.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include "base/initial_weights.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/text/model_template.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/corpus/corpus.hpp"
#include "train/input/described_model.hpp"
#include "weights/finite.hpp"
#include "weights/model_files.hpp"
#include "weights/received.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// Finds all problems, not the first alone.
class ModelCheck {
 public:
  ModelCheck(fs::path folder, const train::Registry& registry)
      : folder_(std::move(folder)), registry_(registry) {}

  int run() {
    look_at_downloads();
    look_at_weights();
    look_at_tokenizer();
    look_at_hashes();
    if (num_problems_ > 0) return static_cast<int>(core::ErrorKind::input);
    log::info(fmt::format("{}: good", folder_.string()));
    return core::exit_done;
  }

 private:
  void tell(const std::string& problem) {
    ++num_problems_;
    log::error(problem);
  }

  bool is_good(const std::function<void()>& part) {
    try {
      part();
      return true;
    } catch (const core::Error& error) {
      tell(error.what());
      return false;
    }
  }

  void look_at_downloads() {
    for (const std::string& part : weights::unfinished_downloads(folder_))
      tell(core::to_string({part, "is a part of a download", "it did not end",
                            "Start the download again: it goes on where it was."}));
  }

  void look_at_weights() {
    if (!is_good([&] { model_ = train::describe_model({}, folder_, registry_); })) return;
    is_good([&] {
      const auto files = weights::ModelFiles::open(folder_);
      base::require_same_model(files, model_->architecture, model_->parameters);
      require_finite(files);
      log::info(fmt::format("weights    {}: {} parameters, {} in {} file{}", model_->family->name,
                            core::with_commas(model_->parameters.num_parameters()),
                            core::human_bytes(files.size_bytes()), files.files().size(),
                            files.files().size() == 1 ? "" : "s"));
    });
  }

  /// Reads all weights: what is not finite, tensor by tensor.
  void require_finite(const weights::ModelFiles& files) {
    constexpr int most_told = 8;
    int num_bad = 0;
    for (const std::string& name : files.names())
      if (num_bad < most_told && !is_good([&] { weights::require_finite(files, name); })) ++num_bad;
  }

  void look_at_tokenizer() {
    is_good([&] {
      const auto tokenizer = tokenizer::Tokenizer::load(folder_);
      if (model_) train::require_vocabulary(tokenizer, model_->architecture);
      log::info(fmt::format("tokenizer  {} tokens{}", core::with_commas(tokenizer.vocab_size()),
                            model_ ? fmt::format(", {} rows in the embedding",
                                                 core::with_commas(model_->architecture.vocab_size))
                                   : ""));
      look_at_template(tokenizer);
    });
  }

  /// It says something of a question.
  void look_at_template(const tokenizer::Tokenizer& tokenizer) {
    const data::ModelTemplates templates = data::model_templates(folder_);
    if (!templates.standard) {
      log::info("template   none: name one by data.template to train on conversations");
      return;
    }
    const auto chat = data::choose_template("model", folder_, tokenizer, registry_.templates);
    data::Conversation question;
    question.messages.push_back({.role = data::ChatRole::user, .text = "Which river is it?"});
    data::render_prompt(chat, question, folder_.string());
    log::info(fmt::format("template   {}: can ask", chat.name));
  }

  void look_at_hashes() {
    std::vector<weights::KnownHash> known;
    if (!is_good([&] { known = weights::known_hashes(folder_); })) return;
    std::set<std::string> equal;
    for (const weights::KnownHash& hash : known)
      is_good([&] {
        const std::string difference = weights::difference(folder_, hash);
        if (difference.empty()) {
          equal.insert(hash.file);
          return;
        }
        tell(core::to_string({(folder_ / hash.file).string(), "is not the file that was published",
                              difference,
                              "Download it again, or remove the hash if you changed it."}));
      });
    if (known.empty()) {
      log::info("hashes     none came with it: `sha256sum * > SHA256SUMS` where it is whole");
    } else {
      log::info(
          fmt::format("hashes     of {} file{} equal", equal.size(), equal.size() == 1 ? "" : "s"));
    }
  }

  fs::path folder_;
  const train::Registry& registry_;
  std::optional<train::DescribedModel> model_;
  int num_problems_ = 0;
};

}  // namespace

int verify_model(const fs::path& folder, const train::Registry& registry) {
  return ModelCheck(folder, registry).run();
}

}  // namespace finetune::app
