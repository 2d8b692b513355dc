// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/pre_tokenizer.hpp"

#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

constexpr const char* supported_stages =
    "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit";

/// \w+|[^\w\s]+ with the \w of Rust's regex library, which this one is matched by.
constexpr std::string_view words_or_marks =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

Behavior read_behavior(const JsonNode& node) {
  const std::string name = node.as_text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.refuse("unknown behavior \"" + name + "\"",
              "known: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

/// Turns matches and the text between them into pieces, one item late because the next item may
/// still join the one before.
template <typename Emit>
class Joiner {
 public:
  Joiner(Behavior behavior, const Emit& emit) : behavior_(behavior), emit_(emit) {}

  void item(ByteRange range, bool is_match) {
    if (behavior_ == Behavior::removed) {
      if (!is_match) emit_(range);
      return;
    }
    if (joins(is_match)) {
      held_->end = range.end;
    } else {
      flush();
      held_ = range;
    }
    last_is_match_ = is_match;
  }

  void flush() {
    if (held_) emit_(*held_);
    held_.reset();
  }

 private:
  bool joins(bool is_match) const {
    if (!held_) return false;
    switch (behavior_) {
      case Behavior::contiguous:
        return is_match == last_is_match_;
      case Behavior::merged_with_previous:
        return is_match && !last_is_match_;
      case Behavior::merged_with_next:
        return !is_match && last_is_match_;
      default:
        return false;
    }
  }

  Behavior behavior_;
  const Emit& emit_;
  std::optional<ByteRange> held_;
  bool last_is_match_ = false;
};

}  // namespace

struct PreTokenizer::Run {
  Prefix prefix;
  Matcher& matcher;
  WordSink& sink;
};

PreTokenizer PreTokenizer::read(const std::optional<JsonNode>& node) {
  PreTokenizer result;
  if (node) result.add(*node);
  return result;
}

PreTokenizer PreTokenizer::of(const std::string& pattern, const std::string& place) {
  PreTokenizer result;
  result.add_regex(pattern, place, Behavior::isolated, false);
  result.byte_level_ = true;
  return result;
}

void PreTokenizer::add(const JsonNode& node) {
  node.limit_steps(stages_.size());
  const std::string type = node.text("type");
  if (byte_level_) {
    node.refuse("a pre-tokenizer follows ByteLevel", "it would see bytes instead of characters",
                "Use a tokenizer.json whose ByteLevel comes last.");
  }
  if (type == "Sequence") {
    node.only({"type", "pretokenizers"});
    for (const JsonNode& part : node.list("pretokenizers"))
      add(part);
  } else if (type == "Split") {
    add_split(node);
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else if (type == "Metaspace") {
    add_metaspace(node);
  } else if (type == "Digits") {
    node.only({"type", "individual_digits"});
    const bool each = node.boolean("individual_digits");
    add_regex(R"(\p{N})", node.place(), each ? Behavior::isolated : Behavior::contiguous, false);
  } else if (type == "Punctuation") {
    node.only({"type", "behavior"});
    const auto behavior = node.find("behavior");
    add_regex(R"([!-/:-@\[-`{-~\p{P}])", node.place(),
              behavior ? read_behavior(*behavior) : Behavior::isolated, false);
  } else if (type == "Whitespace") {
    node.only({"type"});
    add_regex(std::string(words_or_marks), node.place(), Behavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    node.only({"type"});
    add_regex(R"(\s)", node.place(), Behavior::removed, false);
  } else {
    node.refuse_type(type, supported_stages);
  }
}

void PreTokenizer::add_regex(const std::string& pattern, const std::string& place,
                             Behavior behavior, bool invert) {
  const std::optional<KnownSplit> known = KnownSplit::of(pattern);
  if (known) {
    stages_.push_back(Split{*known, behavior, invert});
  } else {
    stages_.push_back(Split{Pattern(Regex(pattern, place)), behavior, invert});
  }
}

void PreTokenizer::add_split(const JsonNode& node) {
  node.only({"type", "pattern", "behavior", "invert"});
  const Behavior behavior = read_behavior(node.at("behavior"));
  const bool invert = node.boolean("invert");
  const JsonNode pattern = node.at("pattern");
  if (const auto regex = pattern.find("Regex")) {
    pattern.only({"Regex"});
    add_regex(regex->as_text(), regex->place(), behavior, invert);
  } else {
    stages_.push_back(Split{Pattern::read(pattern), behavior, invert});
  }
}

void PreTokenizer::add_byte_level(const JsonNode& node) {
  node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (node.boolean("add_prefix_space")) stages_.push_back(AddSpace{});
  if (node.boolean("use_regex", true))
    add_regex(std::string(KnownSplit::gpt2_pattern), node.place(), Behavior::isolated, false);
  byte_level_ = true;
}

void PreTokenizer::add_metaspace(const JsonNode& node) {
  node.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string replacement = node.text("replacement");
  if (replacement.empty() || utf8_length(replacement[0]) != replacement.size())
    node.refuse("the replacement is not one character", "it stands for one space");
  const auto scheme_node = node.find("prepend_scheme");
  const std::string scheme = scheme_node ? scheme_node->as_text() : "always";
  Metaspace stage{Metaspace::Scheme::never, replacement};
  if (scheme == "first") {
    stage.scheme = Metaspace::Scheme::first;
  } else if (scheme == "always") {
    stage.scheme = Metaspace::Scheme::always;
  } else if (scheme != "never") {
    node.refuse("unknown prepend_scheme \"" + scheme + "\"", "known: first, always, never");
  }
  if (!node.boolean("add_prefix_space", true) && scheme != "never") {
    node.refuse("add_prefix_space is false but prepend_scheme is \"" + scheme + "\"",
                "the two contradict each other");
  }
  stages_.push_back(stage);
  if (node.boolean("split", true))
    stages_.push_back(Split{Pattern(replacement), Behavior::merged_with_next, false});
}

void PreTokenizer::run(std::string_view text, bool starts_text, Prefix prefix, Matcher& matcher,
                       WordSink& sink) const {
  Run run{prefix, matcher, sink};
  stage(0, text, starts_text, run);
}

void PreTokenizer::stage(std::size_t index, std::string_view piece, bool starts_text,
                         Run& run) const {
  if (piece.empty()) return;
  if (index == stages_.size()) {
    run.sink.take(piece);
    return;
  }
  const Stage& current = stages_[index];
  if (const auto* split_stage = std::get_if<Split>(&current)) {
    split(*split_stage, index, piece, starts_text, run);
    return;
  }
  const bool prefix_allowed = !starts_text || run.prefix == Prefix::allowed;
  if (std::holds_alternative<AddSpace>(current)) {
    if (piece.front() == ' ' || !prefix_allowed) return stage(index + 1, piece, starts_text, run);
    std::string spaced(1, ' ');
    spaced += piece;
    return stage(index + 1, spaced, starts_text, run);
  }
  const auto& metaspace = std::get<Metaspace>(current);
  std::string changed =
      replace_all(piece, Pattern(std::string(" ")), metaspace.replacement, run.matcher);
  const bool wanted = metaspace.scheme == Metaspace::Scheme::always ||
                      (metaspace.scheme == Metaspace::Scheme::first && starts_text);
  if (wanted && prefix_allowed && !changed.starts_with(metaspace.replacement))
    changed.insert(0, metaspace.replacement);
  stage(index + 1, changed, starts_text, run);
}

void PreTokenizer::split(const Split& split_stage, std::size_t index, std::string_view piece,
                         bool starts_text, Run& run) const {
  const auto next = [&](ByteRange range) {
    stage(index + 1, piece.substr(range.begin, range.end - range.begin),
          starts_text && range.begin == 0, run);
  };
  if (const auto* known = std::get_if<KnownSplit>(&split_stage.pattern)) {
    if (split_stage.behavior == Behavior::isolated) {  // matches cover the text: nothing to join
      known->each(piece, [&](ByteRange range) { next(range); });
      return;
    }
  }
  Joiner joiner(split_stage.behavior, next);
  const auto item = [&](ByteRange range, bool is_match) {
    joiner.item(range, is_match != split_stage.invert);
  };
  if (const auto* known = std::get_if<KnownSplit>(&split_stage.pattern)) {
    known->each(piece, [&](ByteRange range) { item(range, true); });
  } else {
    std::get<Pattern>(split_stage.pattern).each(piece, run.matcher, item);
  }
  joiner.flush();
}

}  // namespace finetune::tokenizer
