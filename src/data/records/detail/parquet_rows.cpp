// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet_rows.hpp"

#include <fmt/format.h>

#include <bit>

#include "core/text.hpp"
#include "data/records/detail/json_index.hpp"
#include "data/records/detail/unpack.hpp"

namespace finetune::data::parquet_file {
namespace {

constexpr int columns = 1, num_rows = 3;  // of RowGroup

/// What any group of rows may take, however well it is compressed.
constexpr std::int64_t room_for_nulls = std::int64_t{512} << 20;

/// One row: a cursor in each leaf, which moves on while values are taken.
/// Source: Melnik et al. 2010, Dremel (levels).
class RowReader {
 public:
  RowReader(const std::vector<std::unique_ptr<const LeafColumn>>& leaves, std::int64_t row,
            const std::string& where)
      : leaves_(leaves), cursors_(leaves.size()), where_(where) {
    for (std::size_t l = 0; l < leaves.size(); ++l)
      if (leaves[l] != nullptr) cursors_[l] = leaves[l]->row(row);
  }

  OrderedJson read(const Node& node) {
    if (node.is_repeated) return read_list(node, node);
    if (node.is_optional && definition(node) < node.max_definition) return skip(node);
    if (node.is_list) {
      const Node& repeated = node.children.front();
      return read_list(repeated, node.is_wrapped ? repeated.children.front() : repeated);
    }
    return content(node);
  }

 private:
  /// The list of `repeated`; what lies in it is `element`, itself or its child.
  OrderedJson read_list(const Node& repeated, const Node& element) {
    OrderedJson list = OrderedJson::array();
    if (definition(repeated) < repeated.max_definition) {
      skip(repeated);
      return list;
    }
    do {
      list.push_back(&element == &repeated ? content(repeated) : read(element));
    } while (goes_on(repeated));
    return list;
  }

  OrderedJson content(const Node& node) {
    if (node.children.empty()) return value(node);
    OrderedJson object = OrderedJson::object();
    for (const Node& child : node.children)
      if (child.is_readable) object[child.name] = read(child);
    return object;
  }

  /// Whether the next entry is another one of the same list.
  bool goes_on(const Node& repeated) const {
    const auto l = static_cast<std::size_t>(repeated.read_leaf);
    return !leaves_[l]->is_at_end(cursors_[l]) &&
           leaves_[l]->repetition(cursors_[l]) >= repeated.max_repetition;
  }

  int definition(const Node& node) const {
    const auto l = static_cast<std::size_t>(node.read_leaf);
    require(l);
    return leaves_[l]->definition(cursors_[l]);
  }

  void require(std::size_t leaf) const {
    if (leaves_[leaf]->is_at_end(cursors_[leaf])) fail_binary(where_, "its columns do not agree");
  }

  /// Of what is missing each leaf that is read has one entry.
  OrderedJson skip(const Node& node) {
    for (int n = 0; n < node.num_leaves; ++n) {
      const auto l = static_cast<std::size_t>(node.first_leaf + n);
      if (leaves_[l] == nullptr) continue;
      require(l);
      if (leaves_[l]->definition(cursors_[l]) >= node.max_definition)
        fail_binary(where_, "its columns do not agree");
      leaves_[l]->advance(cursors_[l]);
    }
    return nullptr;
  }

  OrderedJson value(const Node& node) {
    const auto l = static_cast<std::size_t>(node.first_leaf);
    require(l);
    const LeafColumn& column = *leaves_[l];
    const std::size_t at = cursors_[l].value;
    if (column.definition(cursors_[l]) != node.max_definition)
      fail_binary(where_, "its columns do not agree");
    column.advance(cursors_[l]);
    const Meaning meaning = column.leaf().meaning;
    if (meaning == Meaning::nothing) return nullptr;
    if (meaning == Meaning::text) return text(column.values().texts[at]);
    const std::uint64_t bits = column.values().numbers[at];
    const bool is_narrow = column.leaf().physical == Physical::int32;
    switch (meaning) {
      case Meaning::boolean:
        return bits != 0;
      case Meaning::natural:
        return is_narrow ? bits & 0xFFFFFFFF : bits;
      case Meaning::integer:
        return static_cast<std::int64_t>(bits);
      default:
        if (column.leaf().physical == Physical::real32)
          return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        return std::bit_cast<double>(bits);
    }
  }

  OrderedJson text(Bytes letters) {
    spent_ += std::ssize(letters);
    if (spent_ > 4 * longest_entry_bytes)
      fail_binary(where_,
                  fmt::format("is longer than {}", core::human_bytes(4 * longest_entry_bytes)));
    std::string text(reinterpret_cast<const char*>(letters.data()), letters.size());
    if (const auto bad = core::invalid_utf8(text))
      fail_binary(where_, fmt::format("byte {} of a text is not valid UTF-8", *bad + 1),
                  "texts are UTF-8", "Write the file again from UTF-8.");
    return text;
  }

  const std::vector<std::unique_ptr<const LeafColumn>>& leaves_;
  std::vector<LeafColumn::Cursor> cursors_;
  const std::string& where_;
  std::int64_t spent_ = 0;
};

}  // namespace

RowGroup::RowGroup(const core::File& file, const ThriftValue& group, const Schema& schema,
                   const std::string& where)
    : schema_(schema), leaves_(schema.leaves.size()) {
  const ThriftValue* its = group.find(columns);
  if (its == nullptr || its->items.size() != schema.leaves.size())
    fail_binary(where, "a group of rows does not have all columns");
  Room room(room_for_nulls + most_unpacked(file.size_bytes()), where);
  for (std::size_t l = 0; l < leaves_.size(); ++l) {
    if (!schema.leaves[l].is_read) continue;
    leaves_[l] = std::make_unique<const LeafColumn>(
        file, chunk_of(its->items[l], file.size_bytes(), where), schema.leaves[l],
        group.number_of(num_rows), room, where);
  }
}

OrderedJson RowGroup::row(std::int64_t i, const std::string& at) const {
  RowReader reader(leaves_, i, at);
  OrderedJson record = OrderedJson::object();
  for (const Node& child : schema_.root.children)
    if (child.is_readable) record[child.name] = reader.read(child);
  return record;
}

}  // namespace finetune::data::parquet_file
