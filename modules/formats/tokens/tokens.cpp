// SPDX-License-Identifier: Apache-2.0
#include "formats/tokens/tokens.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"

namespace finetune::formats::tokens {
namespace {

using data::Column;
using data::Columns;

constexpr data::Field ids_field{"input_ids", &Columns::tokens, "data.tokens_column"};
constexpr data::Field labels_field{"labels", &Columns::labels, "data.labels_column"};
constexpr data::Field mask_field{"attention_mask"};

using Ids = std::vector<std::int32_t>;

/// A list of integers from `least` up.
Ids integers(const data::OrderedJson& given, const std::string& name, std::int32_t least,
             const std::string& where) {
  const data::OrderedJson value = data::structured(given, name, where);
  const auto refuse = [&](const std::string& problem) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("field \"{}\" {}", name, problem),
                fmt::format("a list of whole numbers from {} up is needed", least),
                "Correct these data, or choose the data.format they have."});
  };
  if (!value.is_array()) refuse(fmt::format("is of type {}", value.type_name()));
  Ids ids;
  ids.reserve(value.size());
  for (const data::OrderedJson& each : value) {
    if (!each.is_number_integer()) refuse(fmt::format("holds a {}", each.type_name()));
    const auto id = each.get<std::int64_t>();
    if (id < least || id > std::numeric_limits<std::int32_t>::max())
      refuse(fmt::format("holds {}", each.dump()));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

void require_length(const Ids& list, const Ids& ids, const std::string& name,
                    const std::string& where) {
  if (list.size() == ids.size()) return;
  core::fail(core::ErrorKind::input,
             {where, fmt::format("field \"{}\" has {} entries", name, list.size()),
              fmt::format("there are {} tokens", ids.size()), "Give one for each token."});
}

void require_unshifted(const Ids& labels, const Ids& ids, const std::string& name,
                       const std::string& where) {
  for (std::size_t l = 0; l < ids.size(); ++l) {
    if (labels[l] == data::not_trained || labels[l] == ids[l]) continue;
    core::fail(core::ErrorKind::input,
               {where,
                fmt::format("field \"{}\" has {} at place {} where the token is {}", name,
                            labels[l], l + 1, ids[l]),
                "a label is -100 or the token itself; the loss shifts by one",
                "Do not shift the labels."});
  }
}

class TokensReader final : public data::RecordReader {
 public:
  TokensReader(const std::filesystem::path& path, const Columns& columns)
      : data::RecordReader(path),
        ids_(data::column_of(columns, ids_field)),
        labels_(data::column_of(columns, labels_field)),
        mask_(data::column_of(columns, mask_field)) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const data::OrderedJson record = records().object(i);
    const std::string& where = sample.where;
    Ids ids = integers(data::field(record, ids_, where), ids_.name, 0, where);
    Ids labels = ids;
    if (const data::OrderedJson* given = data::find_field(record, labels_, where)) {
      labels = integers(*given, labels_.name, data::not_trained, where);
      require_length(labels, ids, labels_.name, where);
      require_unshifted(labels, ids, labels_.name, where);
    }
    if (const data::OrderedJson* given = data::find_field(record, mask_, where)) {
      const Ids mask = integers(*given, mask_.name, 0, where);
      require_length(mask, ids, mask_.name, where);
      drop_padding(mask, ids, labels, where);
    }
    if (ids.empty()) {
      core::fail(core::ErrorKind::input,
                 {where, "has no tokens", "there is nothing to learn", "Remove this sample."});
    }
    sample.tokens = {std::move(ids), std::move(labels)};
  }

  void drop_padding(const Ids& mask, Ids& ids, Ids& labels, const std::string& where) const {
    std::size_t begin = 0;
    std::size_t end = mask.size();
    while (begin < end && mask[begin] == 0)
      ++begin;
    while (end > begin && mask[end - 1] == 0)
      --end;
    for (std::size_t l = begin; l < end; ++l) {
      if (mask[l] == 1) continue;
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("field \"{}\" has {} at place {}", mask_.name, mask[l], l + 1),
                  "it is 1 for tokens and 0 for padding at the ends",
                  "Give each sample a record of its own; they are packed here."});
    }
    const auto cut = [&](Ids& list) {
      list.resize(end);
      list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(begin));
    };
    cut(ids);
    cut(labels);
  }

  Column ids_;
  Column labels_;
  Column mask_;
};

data::Format format_of(const std::string& name, data::Layout layout) {
  data::Format format{name, layout, data::open_record_files<TokensReader>};
  format.has_tokens = true;
  format.fields = {ids_field, labels_field, mask_field};
  return format;
}

}  // namespace

data::Format format() {
  data::Format tokens = format_of("tokens", data::Layout::separate);
  tokens.fits = [](const data::OrderedJson& record, const Columns& columns) {
    return data::has_column(record, columns, ids_field) ? data::Fit::strong : data::Fit::no;
  };
  return tokens;
}

data::Format documents() {
  return format_of("token_documents", data::Layout::continuous);
}

}  // namespace finetune::formats::tokens
