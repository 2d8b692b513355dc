// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/decoder.hpp"

#include <algorithm>
#include <charconv>

#include "core/text.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::string_view replacement_character = "\uFFFD";

/// Bytes of the longest start of a UTF-8 character at the front of `text`; at least 1.
std::size_t maximal_subpart(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const std::size_t length = utf8_length(text[0]);
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  std::size_t i = 1;
  while (i < length && i < text.size() && byte(i) >= low && byte(i) <= high) {
    low = 0x80;
    high = 0xBF;
    ++i;
  }
  return i;
}

/// The byte of a piece "<0x41>", nothing for any other piece.
std::optional<char> byte_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  unsigned value = 0;
  const char* end = piece.data() + 5;
  const auto [stop, error] = std::from_chars(piece.data() + 3, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<char>(value);
}

std::vector<std::string> join_bytes(const std::vector<std::string>& pieces) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (!core::invalid_utf8(bytes)) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(replacement_character));
    }
    bytes.clear();
  };
  for (const std::string& piece : pieces) {
    if (const auto byte = byte_piece(piece)) {
      bytes += *byte;
      continue;
    }
    flush();
    out.push_back(piece);
  }
  flush();
  return out;
}

std::string strip_piece(std::string_view piece, std::string_view content, std::int32_t start,
                        std::int32_t stop) {
  for (; start > 0 && piece.starts_with(content); --start)
    piece.remove_prefix(content.size());
  for (; stop > 0 && piece.ends_with(content); --stop)
    piece.remove_suffix(content.size());
  return std::string(piece);
}

std::size_t total_size(const std::vector<std::string>& pieces) {
  std::size_t size = 0;
  for (const std::string& piece : pieces)
    size += piece.size();
  return size;
}

std::string join(const std::vector<std::string>& pieces, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) text += between;
    text += pieces[i];
  }
  return text;
}

std::string bytes_to_text(const std::vector<std::string>& pieces) {
  std::string text;
  std::string bytes;
  for (const std::string& piece : pieces)
    text += to_bytes(piece, bytes) ? bytes : piece;
  return lossy_utf8(text);
}

}  // namespace

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  for (auto bad = core::invalid_utf8(bytes); bad; bad = core::invalid_utf8(bytes)) {
    text += bytes.substr(0, *bad);
    text += replacement_character;
    bytes.remove_prefix(*bad);
    bytes.remove_prefix(maximal_subpart(bytes));
  }
  return text.append(bytes);
}

Decoder Decoder::read(const std::optional<JsonNode>& node) {
  Decoder decoder;
  decoder.join_with_spaces_ = !node.has_value();
  if (node) decoder.add(*node);
  return decoder;
}

Decoder Decoder::of_bytes() {
  Decoder decoder;
  decoder.steps_.push_back(Bytes{});
  return decoder;
}

Decoder Decoder::of_sentencepiece(bool drops_prefix) {
  Decoder decoder;
  decoder.steps_.push_back(Replace{Pattern(std::string("\u2581")), " "});
  decoder.steps_.push_back(ByteFallback{});
  decoder.steps_.push_back(Fuse{});
  if (drops_prefix) decoder.steps_.push_back(Strip{" ", 1, 0});
  return decoder;
}

void Decoder::add(const JsonNode& node) {
  node.limit_steps(steps_.size());
  const std::string type = node.text("type");
  if (type == "Sequence") {
    node.only({"type", "decoders"});
    for (const JsonNode& step : node.list("decoders"))
      add(step);
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back(ByteLevel{});
  } else if (type == "Replace") {
    node.only({"type", "pattern", "content"});
    steps_.push_back(Replace{Pattern::read(node.at("pattern")), node.text("content")});
  } else if (type == "ByteFallback") {
    node.only({"type"});
    steps_.push_back(ByteFallback{});
  } else if (type == "Fuse") {
    node.only({"type"});
    steps_.push_back(Fuse{});
  } else if (type == "Strip") {
    node.only({"type", "content", "start", "stop"});
    const std::string content = node.text("content");
    if (content.empty() || utf8_length(content[0]) != content.size())
      node.refuse("the content is not one character", "characters are counted");
    steps_.push_back(Strip{content, node.id("start"), node.id("stop")});
  } else if (type == "Metaspace") {
    node.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const auto scheme = node.find("prepend_scheme");
    const bool never =
        (scheme && scheme->as_text() == "never") || !node.boolean("add_prefix_space", true);
    const std::string replacement = node.text("replacement");
    if (replacement.empty()) node.refuse("the replacement is empty", "it stands for a space");
    steps_.push_back(Metaspace{replacement, !never});
  } else {
    node.refuse_type(type, "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace");
  }
}

std::string Decoder::decode(std::vector<std::string> pieces) const {
  Matcher matcher;
  const std::size_t size = total_size(pieces);
  for (const Step& step : steps_) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      std::size_t now = 0;
      for (std::string& piece : pieces) {
        piece = replace_all(piece, replace->pattern, replace->content, matcher);
        now += piece.size();
        check_growth(size, now);  // many pieces, each within its own bound, are too much as well
      }
    } else if (std::holds_alternative<ByteFallback>(step)) {
      pieces = join_bytes(pieces);
    } else if (std::holds_alternative<Fuse>(step)) {
      pieces = {join(pieces, "")};
    } else if (std::holds_alternative<ByteLevel>(step)) {
      pieces = {bytes_to_text(pieces)};
    } else if (std::holds_alternative<Bytes>(step)) {
      pieces = {lossy_utf8(join(pieces, ""))};
    } else if (const auto* ends = std::get_if<Strip>(&step)) {
      for (std::string& piece : pieces)
        piece = strip_piece(piece, ends->content, ends->start, ends->stop);
    } else {
      const auto& metaspace = std::get<Metaspace>(step);
      const Pattern mark(metaspace.replacement);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const bool drop = i == 0 && metaspace.drops_first;
        pieces[i] = replace_all(pieces[i], mark, drop ? "" : " ", matcher);
      }
    }
    check_growth(size, total_size(pieces));
  }
  return join(pieces, join_with_spaces_ ? " " : "");
}

}  // namespace finetune::tokenizer
