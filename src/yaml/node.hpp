#pragma once
// SPDX-License-Identifier: Apache-2.0
// YAML, of which JSON is a part, read into plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::yaml {

/// Scalars stay text, as YAML and Python disagree about what some are ("1e-4", "on").
struct Node {
  enum class Kind { nothing, text, list, map };
  Kind kind = Kind::nothing;
  std::string text = {};   ///< of a scalar
  bool is_quoted = false;  ///< a text, whatever it looks like
  std::vector<Node> items = {};
  std::vector<std::pair<std::string, Node>> entries = {};
  std::int64_t line = 0;

  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }
  bool is_text() const { return kind == Kind::text; }
  /// null, "", [], {}, and the words for them.
  bool is_empty() const;
  /// Nothing, or a word for no: false, no, off, 0.
  bool is_off() const;
  std::optional<bool> boolean() const;
  std::optional<std::int64_t> integer() const;  ///< also 3.0 and 1e3
  std::optional<double> number() const;
  /// The entry of a map by its dotted path, or null.
  const Node* find(std::string_view path) const;
  /// One line, not too long, for messages and comments.
  std::string shown() const;
};

/// Reads a map from keys to values. `where` begins the message of an error.
/// Refuses: more than 1 MiB, invalid UTF-8, several documents, nesting deeper than 32, more than
/// 20,000 values with those that aliases repeat, keys that stand twice, a top level that is no map.
/// Throws: ErrorKind::deck.
Node read(std::string_view text, const std::string& where);

}  // namespace finetune::yaml
