# SPDX-License-Identifier: Apache-2.0
# Prints what TensorBoard's own readers find in a folder of event files, as JSON: {"numbers": {tag: [[step, value]...]},
# "texts": {tag: [[step, text]...]}, "bars": {tag: [[step, [[left, right, height]...]]...]}}. Fails if the reader of scripts and that of its pages find different things.
#   python3 read_events.py FOLDER
import json
import sys

import numpy
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util import tensor_util

everything = {"tensors": 0, "scalars": 0, "histograms": 0}
for_scripts = event_accumulator.EventAccumulator(sys.argv[1], size_guidance=everything).Reload()
for_pages = plugin_event_accumulator.EventAccumulator(sys.argv[1], size_guidance=everything).Reload()


def content(plugin, value):
    if plugin not in for_pages.ActivePlugins():
        return {}
    return {
        tag: [[e.step, value(tensor_util.make_ndarray(e.tensor_proto))] for e in for_pages.Tensors(tag)]
        for tag in for_pages.PluginTagToContent(plugin)
    }


numbers = content("scalars", lambda array: array.item())
texts = content("text", lambda array: array[0].decode())
bars = content("histograms", lambda array: array.tolist())
tags = for_scripts.Tags()
same = {tag: [[e.step, e.value] for e in for_scripts.Scalars(tag)] for tag in tags["scalars"]}
assert json.dumps(same) == json.dumps(numbers), (same, numbers)
assert sorted(texts) == sorted(tags["tensors"]), tags
assert sorted(bars) == sorted(tags["histograms"]), tags
for tag, points in bars.items():
    # Pages have them in fp32.
    same = [[e.step, numpy.float32(e.histogram_value.bucket).tolist()] for e in for_scripts.Histograms(tag)]
    assert same == [[step, [height for _, _, height in rows]] for step, rows in points], same
json.dump({"numbers": numbers, "texts": texts, "bars": bars}, sys.stdout)
