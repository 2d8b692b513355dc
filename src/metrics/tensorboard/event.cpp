// SPDX-License-Identifier: Apache-2.0
// The messages are those of TensorFlow, which TensorBoard keeps in tensorboard/compat/proto:
// event.proto, summary.proto, tensor.proto, tensor_shape.proto and types.proto
// (https://github.com/tensorflow/tensorboard). What a text is, besides a tensor of strings, says
// tensorboard/plugins/text/metadata.py. Numbers and histograms are in the older of two forms,
// `simple_value` and `histo`: every reader knows them.
#include "metrics/tensorboard/event.hpp"

#include "metrics/tensorboard/detail/wire.hpp"

namespace finetune::metrics {
namespace {

/// Numbers of fields, by message.
struct EventFields {
  static constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
};
struct SessionLogFields {
  static constexpr int status = 1;
};
struct SummaryFields {
  static constexpr int value = 1;
};
struct ValueFields {
  static constexpr int tag = 1, simple_value = 2, histo = 5, tensor = 8, metadata = 9;
};
struct HistogramFields {
  static constexpr int min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, limit = 6, bucket = 7;
};
struct MetadataFields {
  static constexpr int plugin_data = 1, data_class = 4;
};
struct PluginFields {
  static constexpr int plugin_name = 1;
};
struct TensorFields {
  static constexpr int dtype = 1, shape = 2, string_val = 8;
};
struct ShapeFields {
  static constexpr int dim = 2;
};
struct DimFields {
  static constexpr int size = 1;
};

constexpr std::int64_t session_start = 1;
constexpr std::int64_t class_tensor = 2;
constexpr std::int64_t string_dtype = 7;

Message message_of(const EventNumber& number) {
  return Message()
      .bytes(ValueFields::tag, number.tag)
      .one_of(ValueFields::simple_value, static_cast<float>(number.value));
}

Message message_of(const EventText& text) {
  const Message plugin = Message().bytes(PluginFields::plugin_name, "text");
  const Message kind = Message()
                           .bytes(MetadataFields::plugin_data, plugin.data())
                           .integer(MetadataFields::data_class, class_tensor);
  const Message dim = Message().integer(DimFields::size, 1);
  const Message shape = Message().bytes(ShapeFields::dim, dim.data());
  const Message words = Message()
                            .integer(TensorFields::dtype, string_dtype)
                            .bytes(TensorFields::shape, shape.data())
                            .bytes(TensorFields::string_val, text.text);
  return Message()
      .bytes(ValueFields::tag, text.tag)
      .bytes(ValueFields::tensor, words.data())
      .bytes(ValueFields::metadata, kind.data());
}

Message message_of(const EventBars& bars) {
  const auto count = static_cast<double>(bars.heights.size());
  std::vector<double> limits;
  double sum = 0, weighted = 0, squares = 0;
  for (const double height : bars.heights) {
    const double middle = bars.begin + static_cast<double>(limits.size()) + 0.5;
    limits.push_back(middle + 0.5);
    sum += height;
    weighted += height * middle;
    squares += height * middle * middle;
  }
  const Message histogram = Message()
                                .real(HistogramFields::min, bars.begin)
                                .real(HistogramFields::max, bars.begin + count)
                                .real(HistogramFields::num, sum)
                                .real(HistogramFields::sum, weighted)
                                .real(HistogramFields::sum_squares, squares)
                                .reals(HistogramFields::limit, limits)
                                .reals(HistogramFields::bucket, bars.heights);
  return Message().bytes(ValueFields::tag, bars.tag).bytes(ValueFields::histo, histogram.data());
}

Message begun(double wall_time_s, std::int64_t step) {
  return Message().real(EventFields::wall_time, wall_time_s).integer(EventFields::step, step);
}

}  // namespace

std::string to_bytes(const Event& event) {
  Message summary;
  for (const EventNumber& number : event.numbers)
    summary.bytes(SummaryFields::value, message_of(number).data());
  for (const EventText& text : event.texts)
    summary.bytes(SummaryFields::value, message_of(text).data());
  for (const EventBars& bars : event.bars)
    summary.bytes(SummaryFields::value, message_of(bars).data());
  return begun(event.wall_time_s, event.step).bytes(EventFields::summary, summary.data()).data();
}

std::string version_event(double wall_time_s) {
  return Message()
      .real(EventFields::wall_time, wall_time_s)
      .bytes(EventFields::file_version, "brain.Event:2")
      .data();
}

std::string start_event(double wall_time_s, std::int64_t first_step) {
  const Message start = Message().integer(SessionLogFields::status, session_start);
  return begun(wall_time_s, first_step).bytes(EventFields::session_log, start.data()).data();
}

std::int64_t step_of_event(std::string_view bytes) {
  return integer_in(bytes, EventFields::step);
}

std::string as_code(std::string_view text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

}  // namespace finetune::metrics
