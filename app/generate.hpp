#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of `finetune generate`: one prompt, a file of prompts, or a conversation.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli.hpp"
#include "comm/environment.hpp"
#include "core/json.hpp"
#include "data/text/chat_template.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/infer/generate.hpp"
#include "train/infer/loaded_model.hpp"
#include "train/input/registry.hpp"

namespace finetune::app {

/// What all three share. Nothing is owned.
struct Generator {
  const Arguments& arguments;
  const train::Registry& registry;
  const comm::Communicator& world;
  const shard::Groups& groups;
  const shard::Options& options;
  const tokenizer::Tokenizer& tokenizer;
  const model::Architecture& architecture;
  const train::Sampling& sampling;  ///< unless a line of a file says otherwise

  /// The model with the adapter in a folder; empty: without. Collective on the world.
  std::unique_ptr<train::LoadedModel> load(const std::string& adapter) const;
};

/// As --dtype says, or narrow where the model's files are.
core::DType dtype_of_products(const Arguments& arguments, core::DType of_files);

struct Prompt {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> stop;  ///< tokens that end the answer
};

/// A line for people, from the root, on stderr: on stdout are answers alone.
void remark(const comm::Communicator& world, const std::string& text);

/// The chat template that the command line names; else that of the adapter's folder, where it has
/// one, or the model's. Throws: ErrorKind::command_line.
data::ChatTemplate chat_template_of(const Generator& of, const std::string& adapter);
/// Of the first adapter of the command line, if there is one.
data::ChatTemplate chat_template_of(const Generator& of);

/// A conversation up to the model's answer. `where` begins messages.
Prompt prompt_of(const Generator& of, const data::ChatTemplate& chat,
                 const data::Conversation& conversation, const std::string& where);

/// A text: of a user, an instruction or just to go on with, as the command line says. `where`
/// begins messages. Throws: ErrorKind::command_line for an empty one.
Prompt prompt_of(const Generator& of, const std::string& text, const std::string& where);
/// A conversation of a file for `chat`: see data::settle_whole.
void settle_asked(const data::ChatTemplate& chat, const std::string& where, const std::string& why,
                  data::Conversation& conversation);

/// With the sampling that applies. Throws: ErrorKind::command_line beginning with
/// `where` for a prompt that leaves no room.
train::TextRequest request_of(const Generator& of, const Prompt& prompt, std::int64_t id,
                              const std::string& where);
/// Also ends at one of these texts, of which none may be.
void end_at(const Generator& of, const std::vector<std::string>& stops,
            train::TextRequest& request);

/// Whether one of the texts that end an answer is in it, and the answer without what follows.
bool holds_stop(const std::string& text, const std::vector<std::string>& stops);
std::string before_stop(const std::string& text, const std::vector<std::string>& stops);

/// Prints text as it grows, on one rank. A token may end inside a character: only what no later
/// token can change is printed.
class Printer {
 public:
  Printer(const tokenizer::Tokenizer& tokenizer, bool prints)
      : tokenizer_(tokenizer), prints_(prints) {}
  void add(std::int32_t token);
  /// Ends the line; what was said.
  std::string finish();

 private:
  void print(const std::string& text);

  const tokenizer::Tokenizer& tokenizer_;
  bool prints_;
  std::vector<std::int32_t> tokens_;
  std::size_t printed_ = 0;
};

/// Exit codes. Collective on the world.
int generate_file(const Generator& of);
int generate_chat(const Generator& of);
/// Of a model with a head for labels or a number: what it says of a text, or of a file of them.
int label_texts(const Generator& of);

}  // namespace finetune::app
