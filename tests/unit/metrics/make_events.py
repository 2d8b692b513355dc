# SPDX-License-Identifier: Apache-2.0
# Writes tests/golden/metrics/events.tfevents with the messages and the writer of TensorBoard (2.21.0):
#   python3 -m venv venv && venv/bin/pip install tensorboard==2.21.0 && venv/bin/python make_events.py FILE
import sys

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.plugins.text.metadata import PLUGIN_NAME
from tensorboard.summary.writer.record_writer import RecordWriter


def number(tag, value):
    return summary_pb2.Summary.Value(tag=tag, simple_value=value)


def text(tag, words):
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[words.encode()])
    tensor.tensor_shape.dim.add(size=1)
    metadata = summary_pb2.SummaryMetadata(data_class=summary_pb2.DATA_CLASS_TENSOR)
    metadata.plugin_data.plugin_name = PLUGIN_NAME
    return summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)


def bars(tag, begin, heights):
    middles = [begin + 0.5 + i for i in range(len(heights))]
    histogram = summary_pb2.HistogramProto(
        min=begin,
        max=begin + len(heights),
        num=sum(heights),
        sum=sum(h * m for h, m in zip(heights, middles)),
        sum_squares=sum(h * m * m for h, m in zip(heights, middles)),
        bucket_limit=[m + 0.5 for m in middles],
        bucket=heights,
    )
    return summary_pb2.Summary.Value(tag=tag, histo=histogram)


def event(time, step, *values):
    return event_pb2.Event(wall_time=time, step=step, summary=summary_pb2.Summary(value=values))


start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
with open(sys.argv[1], "wb") as file:
    writer = RecordWriter(file)
    for e in (
        event_pb2.Event(wall_time=1790000000.5, file_version="brain.Event:2"),
        event_pb2.Event(wall_time=1790000000.5, step=1, session_log=start),
        event(1790000001, 0, text("deck", "    [train]\n    seed = 1\n    # gr\u00fcn")),
        event(1790000002.25, 1, number("train/loss", 0.1), number("train/lr", 1e-5)),
        event(1790000003, 5_000_000_000, number("train/loss", float("nan")), number("train/lr", 0), text("long", "a" * 300)),
        event(1790000004, 2, bars("norms_by_layer/weight", -1, [0.5, 0, 2.25])),
    ):
        writer.write(e.SerializeToString())
