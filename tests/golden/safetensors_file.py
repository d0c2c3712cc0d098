"""Reads and writes safetensors files without any library: 8-byte little-endian header length, JSON
header, raw data.

Tensors are numpy arrays of float32 or int32 in C order; bfloat16 is read as float32. The header is
padded with spaces to a multiple of 8 bytes, data follow in the given order, without gaps; the same
tensors always give the same bytes.
"""

import json
import struct

import numpy as np

_NAMES = {np.dtype("<f4"): "F32", np.dtype("<i4"): "I32"}
_TYPES = {"F32": np.dtype("<f4"), "I32": np.dtype("<i4"), "BF16": np.dtype("<u2")}


def write(path, tensors, metadata):
    """Writes {name: array} and {key: text}; refuses any type but float32 and int32."""
    header = {"__metadata__": dict(metadata)}
    offset = 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read(path):
    """Returns ({name: array}, {key: text})."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    return {name: _array(entry, content, 8 + length) for name, entry in header.items()}, metadata


def _array(entry, content, base):
    begin, end = entry["data_offsets"]
    array = np.frombuffer(content[base + begin : base + end], _TYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    return array.reshape(entry["shape"])
