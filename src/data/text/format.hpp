#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a data format is: a name, how its samples become sequences, and a reader of its files.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "data/records/records.hpp"
#include "data/text/conversation.hpp"
#include "data/text/detail/split_files.hpp"
#include "data/tokens/detail/tokens.hpp"

namespace finetune::data {

/// A piece of a sample's text. Loss is taken on the tokens of trained segments only.
struct Segment {
  std::string text;
  bool trained = false;
  bool markup = false;  ///< a template wrote it: names of special tokens in it are those tokens
  /// Of what is trained: the message that it answers with; -1: none. An answer may have several
  /// parts, with what is not trained between them.
  std::int32_t answer = -1;
};

/// A text, or a conversation.
struct Answer {
  std::vector<Segment> segments;
  Conversation conversation = {};
};

/// What a file says of one sample: text in segments, a conversation, or both (then the segments are
/// the format's own way to write the conversation, and a template of the deck's takes their place);
/// or tokens and nothing else.
struct Sample {
  std::vector<Segment> segments;
  std::string where;  ///< "file:line", or "file:line: entry 12": begins every message about it
  Conversation conversation = {};
  Tokens tokens = {};
  OrderedJson label = {};               ///< of the whole text, as the file has it; null: none
  std::optional<Answer> rejected = {};  ///< what the rest of the sample was preferred to
  std::uint32_t oddities = 0;           ///< bits of Oddity that the reader saw
  std::string left_out = {};            ///< see settle_roles; readers leave it alone
};

/// The samples of a path, in file order. Cheap to open: a sample is read when asked for, so ranks
/// read different samples at the same time.
class SampleReader {
 public:
  virtual ~SampleReader() = default;

  virtual std::int64_t size() const = 0;

  /// 0 <= i < size(). Throws: ErrorKind::input naming file and line if the sample cannot be used.
  virtual Sample sample(std::int64_t i) const = 0;

  /// "file:line", or "file:line: entry 12", without reading the sample where that can be.
  virtual std::string where(std::int64_t i) const { return sample(i).where; }

  /// The files that were opened, in order.
  virtual std::vector<std::filesystem::path> files() const { return {}; }

  /// Those of them that are files of records, whose indices ranks may share out.
  virtual std::vector<Records*> record_files() const { return {}; }

  /// Closes what can be opened again when something is read.
  virtual void release() const {}

 protected:
  SampleReader() = default;
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;
};

/// Names of the columns (fields of a record) that the deck chooses; empty: the format's own.
struct Columns {
  std::map<std::string, std::string> mapped;  ///< by what formats call their fields
  std::string conversation;
  std::string prompt;
  std::string input;
  std::string answer;
  std::string text;
  std::string system;
  std::string tools;
  std::string tokens;
  std::string labels;
  std::string label;
  std::vector<std::string> turns;  ///< a conversation: columns of user, assistant, user, ...
  /// What messages call their fields (message_field_names), and roles (role_names), by our names.
  std::map<std::string, std::string> message_fields;
  std::map<std::string, std::string> roles;
  /// Jinja over all fields of a record: what takes the place of the prompt, and of the answer.
  std::string prompt_template;
  std::string answer_template;
  /// Names that chat templates are given; those of a sample's own column come over them. An object
  /// or null. Readers leave it alone: TextSource adds it.
  OrderedJson template_kwargs = {};
};

/// A field of a format's records, and how the deck gives it another column: data.columns has its
/// name, and it may have a key of its own.
struct Field {
  const char* name;
  std::string Columns::*chosen = nullptr;
  const char* key = "";  ///< "data.prompt_column"
};

enum class Layout {
  separate,    ///< every sample is a sequence of its own (instructions)
  continuous,  ///< documents run on and are cut into full blocks (plain text)
};

/// Whether a record looks as a format has them. A weak fit counts where nothing else fits.
enum class Fit { no, weak, strong };

struct Format {
  std::string name;
  Layout layout;
  /// Throws: ErrorKind::input if the path cannot be read or holds no sample.
  std::function<std::unique_ptr<SampleReader>(const DataPath&, const Columns&)> open;
  bool needs_template = false;  ///< its samples are conversations and nothing else
  bool has_tokens = false;      ///< its samples are token ids: no tokenizer is needed
  bool has_labels = false;      ///< its samples are texts with a label, which continue in nothing
  bool reads_messages = false;  ///< its records may hold lists of messages
  bool has_pairs = false;       ///< its samples are two texts of which one was preferred
  std::vector<Field> fields = {};  ///< that it reads
  /// Which of them data.prompt_template and data.answer_template take the place of.
  std::vector<std::string> prompt_fields = {};
  std::vector<std::string> answer_fields = {};
  /// By the names of a record's fields; empty: the format is only taken where the deck names it.
  std::function<Fit(const OrderedJson& record, const Columns&)> fits = {};
  bool reads_plain_text = false;  ///< also files that hold no records
};

}  // namespace finetune::data
