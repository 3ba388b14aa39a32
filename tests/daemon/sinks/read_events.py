"""read_events.py DIR: what TensorBoard's own reader finds in a folder of event files, as sorted lines.

"scalar TAG STEP VALUE" and "text TAG STEP"; all points, none sampled away. The reader drops undone scalars alone, so
a text that was repeated is printed once."""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
for tag in events.Tags()["scalars"]:
    for point in events.Scalars(tag):
        print("scalar", tag, point.step, "%.9g" % point.value)
for tag in events.Tags()["tensors"]:
    for point in events.Tensors(tag):
        assert point.tensor_proto.string_val[0].decode() == "    Once upon a time"
    for step in sorted({point.step for point in events.Tensors(tag)}):
        print("text", tag, step)
