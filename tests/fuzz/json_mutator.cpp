// SPDX-License-Identifier: Apache-2.0
#include "fuzz/json_mutator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t limit);

namespace finetune::fuzz {
namespace {

// Keeps members in the order of the text, as some readers depend on it.
using Json = nlohmann::ordered_json;

// Copies of the tree recurse.
constexpr int deepest = 200;

const std::array<const char*, 22> values = {"null",
                                            "true",
                                            "false",
                                            "0",
                                            "1",
                                            "-1",
                                            "2",
                                            "255",
                                            "2147483647",
                                            "2147483648",
                                            "4294967295",
                                            "9223372036854775807",
                                            "9223372036854775808",
                                            "18446744073709551615",
                                            "1e300",
                                            "0.5",
                                            "[]",
                                            "{}",
                                            "\"\"",
                                            "[0,0]",
                                            "\"F32\"",
                                            "[1,1,1,1,1,1,1,1]"};

const std::array<const char*, 20> texts = {"..",
                                           "../x",
                                           "/etc/passwd",
                                           "a/b",
                                           "<0x41>",
                                           "<0x-1>",
                                           "<0xG1>",
                                           "<0xc3>",
                                           "\x1b[2J",
                                           "\xc2\x9b",
                                           "\xe2\x96\x81",
                                           "\xc4\xa0",
                                           "(a*)*b",
                                           "\\s+(?!\\S)",
                                           "\\K",
                                           "F16",
                                           "node00000.h5",
                                           " ",
                                           "aaaaaaaaaaaaaaaa",
                                           "\xe2\x80\xae"};

bool is_shallow(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > deepest) return false;
  }
  return true;
}

class Tree {
 public:
  Tree(Json root, unsigned seed) : root_(std::move(root)), random_(seed) {}

  std::string mutated() {
    const std::size_t changes = 1 + below(3);
    for (std::size_t i = 0; i < changes; ++i)
      change(any());
    return root_.dump(-1, ' ', below(8) == 0, Json::error_handler_t::replace);
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  static void collect(Json& node, std::vector<Json*>& nodes) {
    nodes.push_back(&node);
    for (Json& child : node) {
      if (node.is_structured()) collect(child, nodes);
    }
  }

  Json& any() {
    std::vector<Json*> nodes;
    collect(root_, nodes);
    return *nodes[below(nodes.size())];
  }

  void change(Json& node) {
    switch (below(6)) {
      case 0:
        node = Json(any());
        return;
      case 1:
        node = Json::parse(values[below(values.size())]);
        return;
      default:
        if (node.is_number_integer()) return number(node);
        if (node.is_string()) return string(node);
        if (node.is_array()) return array(node);
        if (node.is_object()) return object(node);
    }
  }

  void number(Json& node) {
    const auto value = node.get<std::uint64_t>();
    const std::array<std::uint64_t, 8> next = {value + 1,  value - 1,         value * 2,
                                               value / 2,  below(256),        value + 64,
                                               value - 64, value << below(64)};
    node = next[below(next.size())];
  }

  void string(Json& node) {
    std::string text = node.get<std::string>();
    if (below(4) == 0) {
      text = texts[below(texts.size())];
    } else if (below(4) == 0) {
      text.insert(below(text.size() + 1), texts[below(texts.size())]);
    } else {
      const std::size_t size = text.size();
      text.resize(size + 16);
      text.resize(
          LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
    }
    node = std::move(text);
  }

  void array(Json& node) {
    const std::size_t at = below(node.size() + 1);
    const auto place = node.begin() + static_cast<std::ptrdiff_t>(at);
    if (at == node.size() || below(3) == 0) {
      Json copy = any();
      node.insert(place, std::move(copy));
    } else if (below(2) == 0) {
      node.erase(at);
    } else {
      std::swap(node[at], node[below(node.size())]);
    }
  }

  void object(Json& node) {
    if (node.empty() || below(3) == 0) {
      Json copy = any();
      Json name = node.empty() ? Json("a") : Json(member(node).key());
      string(name);
      node[name.dump(-1, ' ', false, Json::error_handler_t::replace)] = copy;
      return;
    }
    const auto from = member(node);
    if (below(2) == 0) {
      node.erase(from);
    } else {
      Json value = from.value();
      member(node).value() = std::move(value);
    }
  }

  Json::iterator member(Json& node) {
    auto at = node.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(node.size())));
    return at;
  }

  Json root_;
  std::minstd_rand random_;
};

std::string mutate_bytes(std::string_view text, std::size_t limit) {
  std::string bytes(text.substr(0, limit));
  const std::size_t size = bytes.size();
  bytes.resize(limit);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, limit));
  return bytes;
}

}  // namespace

std::string mutate_json(std::string_view text, std::size_t limit, unsigned seed) {
  if (seed % 5 == 0 || !is_shallow(text)) return mutate_bytes(text, limit);
  Json root = Json::parse(text, nullptr, false);
  if (root.is_discarded()) return mutate_bytes(text, limit);
  std::string changed = Tree(std::move(root), seed).mutated();
  return changed.size() <= limit ? changed : mutate_bytes(text, limit);
}

std::size_t mutate_json(std::uint8_t* data, std::size_t size, std::size_t limit, unsigned seed) {
  const std::string changed = mutate_json({reinterpret_cast<const char*>(data), size}, limit, seed);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}

}  // namespace finetune::fuzz
