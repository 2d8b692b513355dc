// SPDX-License-Identifier: Apache-2.0
#include "formats/labelled/labelled.hpp"

#include "data/records/fields.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/record_reader.hpp"

namespace finetune::formats::labelled {
namespace {

using data::Column;

class LabelledReader final : public data::RecordReader {
 public:
  LabelledReader(const std::filesystem::path& path, const data::Columns& columns)
      : data::RecordReader(path),
        text_(Column::of(columns.text, "text", "data.text_column")),
        label_(Column::of(columns.label, "label", "data.label_column")) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const core::Json record = records().object(i);
    sample.segments = {{data::text_field(record, text_, sample.where), false}};
    sample.label = data::field(record, label_, sample.where);
  }

  Column text_;
  Column label_;
};

}  // namespace

data::Format format() {
  data::Format format{"labelled", data::Layout::separate, data::open_record_files<LabelledReader>};
  format.has_labels = true;
  return format;
}

}  // namespace finetune::formats::labelled
