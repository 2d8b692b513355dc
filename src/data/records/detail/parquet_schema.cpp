// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet_schema.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace finetune::data::parquet_file {
namespace {

constexpr int deepest_node = 24;

// Fields of SchemaElement, and values of ConvertedType and of the union LogicalType.
namespace element {
constexpr int type = 1, repetition = 3, name = 4, num_children = 5, converted = 6, logical = 10;
}
namespace converted {
constexpr int utf8 = 0, map = 1, map_key_value = 2, list = 3, as_enum = 4, uint8 = 11, uint64 = 14,
              int8 = 15, int64 = 18, json = 19;
}
namespace logical {
constexpr int string = 1, map = 2, list = 3, as_enum = 4, integer = 10, unknown = 11, json = 12;
constexpr int is_signed = 2;  // of integer
}  // namespace logical

bool is_natural(int code) {
  return code >= converted::uint8 && code <= converted::uint64;
}

Meaning meaning_of_number(int code, const ThriftValue* type) {
  if (type != nullptr) {
    if (type->find(logical::unknown) != nullptr) return Meaning::nothing;
    const ThriftValue* integer = type->find(logical::integer);
    // Dates, times, decimals.
    if (integer == nullptr && !type->fields.empty()) return Meaning::none;
    if (integer != nullptr)
      return integer->number_of(logical::is_signed, 1) != 0 ? Meaning::integer : Meaning::natural;
  }
  if (code < 0 || (code >= converted::int8 && code <= converted::int64)) return Meaning::integer;
  return is_natural(code) ? Meaning::natural : Meaning::none;
}

Meaning meaning_of_bytes(int code, const ThriftValue* type) {
  if (type != nullptr && type->find(logical::unknown) != nullptr) return Meaning::nothing;
  const bool is_text = code == converted::utf8 || code == converted::as_enum ||
                       code == converted::json ||
                       (type != nullptr && (type->find(logical::string) != nullptr ||
                                            type->find(logical::as_enum) != nullptr ||
                                            type->find(logical::json) != nullptr));
  return is_text ? Meaning::text : Meaning::none;
}

class SchemaReader {
 public:
  SchemaReader(const std::vector<ThriftValue>& elements, const std::string& where)
      : elements_(elements), where_(where) {}

  Schema read() {
    made_.root = node(0, 0, 0);
    if (next_ != elements_.size()) fail_binary(where_, "its columns are described wrongly");
    mark(made_.root, true);
    for (const Node& column : made_.root.children)
      if (column.is_readable) list_left_out(column, column.name);
    return std::move(made_);
  }

 private:
  Node node(int depth, int definition, int repetition) {
    if (next_ >= elements_.size() || depth > deepest_node)
      fail_binary(where_, "its columns are described wrongly");
    const ThriftValue& its = elements_[next_++];
    Node made;
    made.name = its.text_of(element::name);
    if (core::invalid_utf8(made.name))
      fail_binary(where_, "the name of a column is not valid UTF-8");
    const std::int64_t kind = depth == 0 ? 0 : its.number_of(element::repetition);
    made.is_optional = kind == 1;
    made.is_repeated = kind == 2;
    made.max_definition = definition + (made.is_optional || made.is_repeated ? 1 : 0);
    made.max_repetition = repetition + (made.is_repeated ? 1 : 0);
    made.first_leaf = static_cast<int>(made_.leaves.size());
    const std::int64_t num_children = its.number_of(element::num_children);
    if (num_children < 0 || num_children > static_cast<std::int64_t>(elements_.size()))
      fail_binary(where_, "its columns are described wrongly");
    for (std::int64_t c = 0; c < num_children; ++c)
      made.children.push_back(node(depth + 1, made.max_definition, made.max_repetition));
    if (num_children == 0 && depth > 0) add_leaf(its, made);
    made.num_leaves = static_cast<int>(made_.leaves.size()) - made.first_leaf;
    if (num_children > 0) set_kind(its, made);
    return made;
  }

  void add_leaf(const ThriftValue& its, Node& made) {
    const std::int64_t type = its.number_of(element::type, -1);
    if (type < 0 || type > 7) fail_binary(where_, "a column is of no type");
    Leaf leaf{.physical = static_cast<Physical>(type)};
    const int code =
        static_cast<int>(std::clamp<std::int64_t>(its.number_of(element::converted, -1), -1, 100));
    const ThriftValue* kind = its.find(element::logical);
    switch (leaf.physical) {
      case Physical::boolean:
        leaf.meaning = Meaning::boolean;
        break;
      case Physical::int32:
      case Physical::int64:
        leaf.meaning = meaning_of_number(code, kind);
        break;
      case Physical::real32:
      case Physical::real64:
        leaf.meaning = Meaning::real;
        break;
      case Physical::bytes:
        leaf.meaning = meaning_of_bytes(code, kind);
        break;
      default:
        break;
    }
    leaf.max_definition = made.max_definition;
    leaf.max_repetition = made.max_repetition;
    made.read_leaf = made.first_leaf;
    made.is_readable = leaf.meaning != Meaning::none;
    made_.leaves.push_back(leaf);
  }

  /// Source: LogicalTypes.md, "Lists", with its rules for files of older writers.
  void set_kind(const ThriftValue& its, Node& made) const {
    const ThriftValue* type = its.find(element::logical);
    const std::int64_t code = its.number_of(element::converted, -1);
    const auto is = [&](int old, int now) {
      return code == old || (type != nullptr && type->find(now) != nullptr);
    };
    const auto first =
        std::ranges::find_if(made.children, [](const Node& child) { return child.is_readable; });
    made.is_readable = first != made.children.end() && !is(converted::map, logical::map) &&
                       code != converted::map_key_value;
    if (made.is_readable) made.read_leaf = first->read_leaf;
    // The root is of columns, of which each is left out for itself.
    if (made.max_definition == 0 && &its == &elements_.front()) made.is_readable = true;
    if (!is(converted::list, logical::list)) return;
    made.is_list = made.children.size() == 1 && made.children.front().is_repeated;
    if (!made.is_list) return;
    const Node& repeated = made.children.front();
    made.is_wrapped = repeated.children.size() == 1 && repeated.name != "array" &&
                      repeated.name != made.name + "_tuple";
  }

  void mark(const Node& node, bool is_read) {
    const bool is_all = is_read && node.is_readable;
    if (node.children.empty() && node.num_leaves == 1)
      made_.leaves[static_cast<std::size_t>(node.first_leaf)].is_read = is_all;
    for (const Node& child : node.children)
      mark(child, is_all);
  }

  /// What lies in a list has the list's name.
  void list_left_out(const Node& node, const std::string& name) {
    if (node.is_list) {
      const Node& repeated = node.children.front();
      return list_left_out(node.is_wrapped ? repeated.children.front() : repeated, name);
    }
    for (const Node& child : node.children) {
      const std::string its = name + "." + child.name;
      if (child.is_readable)
        list_left_out(child, its);
      else
        made_.left_out.push_back(its);
    }
  }

  const std::vector<ThriftValue>& elements_;
  const std::string& where_;
  std::size_t next_ = 0;
  Schema made_;
};

}  // namespace

Schema schema_of(const ThriftValue& metadata, const std::string& where) {
  constexpr int schema = 2;
  const ThriftValue* elements = metadata.find(schema);
  if (elements == nullptr || elements->items.empty()) fail_binary(where, "describes no columns");
  return SchemaReader(elements->items, where).read();
}

}  // namespace finetune::data::parquet_file
