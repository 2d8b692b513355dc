#pragma once
// SPDX-License-Identifier: Apache-2.0
// Columns of a Parquet file: the tree of their values, and its leaves.

#include <cstdint>
#include <string>
#include <vector>

#include "data/records/detail/thrift.hpp"

namespace finetune::data::parquet_file {

enum class Physical { boolean, int32, int64, int96, real32, real64, bytes, fixed_bytes };

/// What values become in JSON.
enum class Meaning { none, integer, natural, real, boolean, text, nothing };

/// A node of the tree. Of an entry in a leaf, the definition level says how many of its ancestors
/// (and itself) that may be missing are there, the repetition level which list it goes on.
struct Node {
  std::string name;
  bool is_optional = false;
  bool is_repeated = false;
  bool is_list = false;     ///< its only child is repeated, and with it a list
  bool is_wrapped = false;  ///< that child's only child is what lies in the list
  bool is_readable = true;  ///< it has a form in JSON, though perhaps without some of its children
  int max_definition = 0;
  int max_repetition = 0;
  std::vector<Node> children = {};
  int first_leaf = 0;
  int num_leaves = 0;
  int read_leaf = 0;  ///< the first of its leaves that is read, where it is readable
};

struct Leaf {
  Physical physical = Physical::bytes;
  Meaning meaning = Meaning::none;
  int max_definition = 0;
  int max_repetition = 0;
  bool is_read = false;  ///< it and all of its ancestors are readable
};

struct Schema {
  Node root;
  std::vector<Leaf> leaves;           ///< in the order of the file's columns
  std::vector<std::string> left_out;  ///< as Records::left_out
};

/// The schema of FileMetaData. Throws: ErrorKind::input beginning with `where` for one that is
/// broken, or nested too deeply. Source: Apache Parquet, parquet.thrift and LogicalTypes.md.
Schema schema_of(const ThriftValue& metadata, const std::string& where);

}  // namespace finetune::data::parquet_file
