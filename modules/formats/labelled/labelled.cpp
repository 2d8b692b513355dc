// SPDX-License-Identifier: Apache-2.0
#include "formats/labelled/labelled.hpp"

#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"
#include "data/text/record_template.hpp"

namespace finetune::formats::labelled {
namespace {

using data::Column;
using data::Columns;
using data::FieldText;

constexpr data::Field text_field{"text", &Columns::text, "data.text_column"};
constexpr data::Field label_field{"label", &Columns::label, "data.label_column"};

class LabelledReader final : public data::RecordReader {
 public:
  LabelledReader(const std::filesystem::path& path, const Columns& columns)
      : data::RecordReader(path),
        text_(FieldText::prompt(columns, text_field)),
        label_(data::column_of(columns, label_field)) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const data::OrderedJson record = records().object(i);
    sample.segments = {{text_.read(record, sample.where), false}};
    sample.label = data::field(record, label_, sample.where);
  }

  FieldText text_;
  Column label_;
};

}  // namespace

data::Format format() {
  data::Format format{"labelled", data::Layout::separate, data::open_record_files<LabelledReader>};
  format.has_labels = true;
  format.fields = {text_field, label_field};
  format.prompt_fields = {text_field.name};
  return format;
}

}  // namespace finetune::formats::labelled
