// SPDX-License-Identifier: Apache-2.0
// The only caller of yaml-cpp. Its events are taken, not its documents: they can be counted before
// they take memory, and it does not repeat what aliases name.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/text.hpp"
#include "yaml/node.hpp"

namespace finetune::yaml {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr std::size_t deepest = 32;
constexpr std::int64_t most_values = 20'000;

[[noreturn]] void refuse(const std::string& where, std::int64_t line, const std::string& problem,
                         const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::deck,
             {line > 0 ? fmt::format("{}:{}", where, line) : where, problem, why, remedy});
}

std::int64_t values_in(const Node& node) {
  std::int64_t count = 1;
  for (const Node& item : node.items)
    count += values_in(item);
  for (const auto& [key, value] : node.entries)
    count += values_in(value);
  return count;
}

std::size_t depth_of(const Node& node) {
  std::size_t deepest_below = 0;
  for (const Node& item : node.items)
    deepest_below = std::max(deepest_below, depth_of(item));
  for (const auto& [key, value] : node.entries)
    deepest_below = std::max(deepest_below, depth_of(value));
  return deepest_below + 1;
}

class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string where) : where_(std::move(where)) {}

  const Node& root() const { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.line = line_of(mark);
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end())
      refuse(where_, line_of(mark), "an alias stands inside of what it names",
             "it would repeat itself for ever", "Write the value out.");
    count(values_in(found->second), line_of(mark));
    require_depth(depth_of(found->second), line_of(mark));
    add(Node(found->second), 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node;
    node.line = line_of(mark);
    node.is_quoted = tag == "!";
    const bool is_null =
        !node.is_quoted && (value == "~" || value == "null" || value == "Null" || value == "NULL");
    if (!is_null) {
      node.kind = Node::Kind::text;
      node.text = value;
    }
    add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(Node::Kind::list, mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(Node::Kind::map, mark, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor = 0;
    std::optional<std::string> key;
    std::map<std::string, std::size_t> places;  ///< of its keys
    std::set<std::string> merged;               ///< keys that came by <<
  };

  static std::int64_t line_of(const YAML::Mark& mark) { return mark.line + 1; }

  void count(std::int64_t more, std::int64_t line) {
    num_values_ += more;
    if (num_values_ > most_values)
      refuse(where_, line,
             fmt::format("it has more than {} values", core::with_commas(most_values)),
             "those that aliases repeat are counted", "Is this the right file?");
  }

  void require_depth(std::size_t below, std::int64_t line) const {
    if (open_.size() + below > deepest)
      refuse(where_, line, fmt::format("it is nested deeper than {} levels", deepest),
             "no configuration is", "Is this the right file?");
  }

  void begin(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    require_depth(1, line_of(mark));
    Open open;
    open.node.kind = kind;
    open.node.line = line_of(mark);
    open.anchor = anchor;
    open_.push_back(std::move(open));
  }

  void end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.node), done.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    count(1, node.line);
    if (anchor != 0) anchored_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      if (node.is_list() || node.is_map())
        refuse(where_, node.line, "a key is a list or a map", "keys are words", "Write a word.");
      parent.key = node.text;
    } else {
      add_entry(parent, std::move(node));
    }
  }

  void add_entry(Open& parent, Node node) {
    std::string key = *std::exchange(parent.key, std::nullopt);
    // `<<: *defaults`: what the map does not say itself.
    if (key == "<<" && node.is_map()) {
      for (auto& entry : node.entries)
        merge(parent, std::move(entry));
      return;
    }
    const auto [known, is_new] = parent.places.emplace(key, parent.node.entries.size());
    if (!is_new) {
      if (parent.merged.erase(key) == 0)
        refuse(where_, node.line,
               fmt::format("the key '{}' stands here again", core::one_line(key)),
               "it is not clear which is meant", "Remove one of them.");
      parent.node.entries[known->second].second = std::move(node);
      return;
    }
    parent.node.entries.emplace_back(std::move(key), std::move(node));
  }

  static void merge(Open& map, std::pair<std::string, Node> entry) {
    if (!map.places.emplace(entry.first, map.node.entries.size()).second) return;
    map.merged.insert(entry.first);
    map.node.entries.push_back(std::move(entry));
  }

  std::string where_;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Node> anchored_;
  std::int64_t num_values_ = 0;
};

void require_readable(std::string_view text, const std::string& where) {
  if (text.size() > most_bytes)
    refuse(where, 0, fmt::format("it has {} bytes", core::with_commas(std::ssize(text))),
           "at most 1 MiB is read", "Is this the right file?");
  if (core::invalid_utf8(text))
    refuse(where, 0, "it is not valid UTF-8", "YAML and JSON are",
           "Convert it, for example with iconv.");
  if (text.find('\0') != std::string_view::npos)
    refuse(where, 0, "it holds zero bytes", "it is no text", "Is this the right file?");
}

}  // namespace

Node read(std::string_view text, const std::string& where) {
  require_readable(text, where);
  std::istringstream stream{std::string(text)};
  Builder builder(where);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder))
      refuse(where, 0, "it is empty", "there is nothing to make a deck from",
             "Is this the right file?");
    Builder rest(where);
    if (parser.HandleNextDocument(rest))
      refuse(where, 0, "it holds several documents", "each would be a deck of its own",
             "Give each a file of its own (they are separated by ---).");
  } catch (const YAML::Exception& error) {
    refuse(where, error.mark.is_null() ? 0 : error.mark.line + 1,
           "this is neither YAML nor JSON: " + core::one_line(error.msg), "",
           "Correct it; or is it another file that is meant?");
  }
  if (!builder.root().is_map())
    refuse(where, builder.root().line, "it has no keys",
           "a configuration is a map from keys to values", "Is this the right file?");
  return builder.root();
}

}  // namespace finetune::yaml
