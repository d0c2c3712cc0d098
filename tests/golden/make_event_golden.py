#!/usr/bin/env python3
"""Writes events.tfevents with TensorBoard's own protocol buffers and record writer:

python3 -m venv venv && venv/bin/pip install tensorboard 'setuptools<81'
venv/bin/python tests/golden/make_event_golden.py
"""

import pathlib

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

EVENTS = [
    event_pb2.Event(wall_time=1.5, file_version="brain.Event:2"),
    event_pb2.Event(wall_time=1.5, step=1, session_log=event_pb2.SessionLog(status=1)),
    event_pb2.Event(
        wall_time=1234567890.25,
        step=300,
        summary=summary_pb2.Summary(
            value=[
                summary_pb2.Summary.Value(tag="train/loss", simple_value=2.5),
                summary_pb2.Summary.Value(tag="train/zero", simple_value=0.0),
                summary_pb2.Summary.Value(tag="train/nan", simple_value=float("nan")),
                summary_pb2.Summary.Value(tag="validation/" + "x" * 200, simple_value=-1e-30),
            ]
        ),
    ),
    event_pb2.Event(wall_time=2.0, step=10**12, session_log=event_pb2.SessionLog(status=1)),
]

with open(pathlib.Path(__file__).parent / "events.tfevents", "wb") as file:
    writer = RecordWriter(file)
    for event in EVENTS:
        writer.write(event.SerializeToString(deterministic=True))
