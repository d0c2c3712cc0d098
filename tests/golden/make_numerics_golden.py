"""Writes numerics_golden.json: Philox known answers, counter layout, normals of the initialization,
bfloat16 rounding.

The published values are transcribed and recomputed here from the definitions; a disagreement is an
error.
"""

import json
import math
import pathlib
import sys

from exact_float import F32, bf16_bits, from_bits, hex32

FOLDER = pathlib.Path(__file__).resolve().parent
MASK = 0xFFFFFFFF

# (counter, key, output)
PHILOX = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
WORD_SEED = 0x0123456789ABCDEF
# (tensor, row, column, step, stream), word
WORDS = [
    ((0, 0, 0, 0, 0), "b850222e"),
    ((3, 5, 7, 1, 1), "c2f8eda2"),
    ((3, 5, 4, 1, 1), "1252a316"),
    ((218, 2047, 5460, 99999, 1), "94fabd38"),
]
NORMAL_SEED = 42
NORMAL_WORDS = "9ceaf053 77f5493b 12bf50ad 5742b3d7"
NORMALS = (
    "-0.97018979 0.194018956 -1.23562074 1.92392675 -0.073181508 0.139137496 -1.10666503"
    " 0.326682961"
)
INIT_STD = 0.02
INIT = "bc9ef4b6 3b7e4df5 bcca71b1 3d1d9bab"
BF16_NEAREST = [
    ("3f807fff", "3f80"),
    ("3f808000", "3f80"),
    ("3f808001", "3f81"),
    ("3f818000", "3f82"),
    ("7f7f7fff", "7f7f"),
    ("7f7f8000", "7f80"),
    ("00008000", "0000"),
    ("00008001", "0001"),
    ("7fc00000", "7fff"),
    ("ffc00000", "7fff"),
    ("7f800001", "7fff"),
    ("ff800001", "7fff"),
    ("7fffffff", "7fff"),
    # Not published: signs, infinities, the largest values, a carry into the exponent.
    ("00000000", "0000"),
    ("80000000", "8000"),
    ("80008000", "8000"),
    ("80008001", "8001"),
    ("7f800000", "7f80"),
    ("ff800000", "ff80"),
    ("7f7fffff", "7f80"),
    ("ff7fffff", "ff80"),
    ("3fffffff", "4000"),
]


def philox(counter, key):
    """Philox4x32-10; counter 4 words, key 2 words."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def words(text):
    return [int(word, 16) for word in text.split()]


def block(seed, tensor, row, column, step, stream):
    """Returns the four words of columns 4*(column/4) .. +3."""
    return philox((column >> 2, row, step, stream << 16 | tensor), (seed & MASK, seed >> 32))


def normal_pair(x0, x1):
    radius = math.sqrt(-2 * math.log((x0 + 1) * 2.0**-32))
    angle = 2 * math.pi * (x1 * 2.0**-32)
    return radius * math.cos(angle), radius * math.sin(angle)


def normals(seed, tensor, row, columns):
    """`columns` standard normals in float64 (a multiple of 4): stream 0, step 0."""
    z = []
    for column in range(0, columns, 4):
        x = block(seed, tensor, row, column, 0, 0)
        z += [*normal_pair(x[0], x[1]), *normal_pair(x[2], x[3])]
    return z


def disagreements():
    for counter, key, output in PHILOX:
        if philox(words(counter), words(key)) != words(output):
            yield f"philox {counter}"
    for place, word in WORDS:
        if block(WORD_SEED, *place)[place[2] & 3] != int(word, 16):
            yield f"word {place}"
    if block(NORMAL_SEED, 0, 0, 0, 0, 0) != words(NORMAL_WORDS):
        yield "words of the normals"
    z = normals(NORMAL_SEED, 0, 0, 8)
    for i, text in enumerate(NORMALS.split()):
        if F32(z[i]) != F32(text):  # the nine published digits determine the float32
            yield f"normal {i}: {z[i]!r}, published {text}"
    for i, text in enumerate(INIT.split()):
        if hex32(F32(INIT_STD * z[i])) != text:
            yield f"init {i}: {hex32(F32(INIT_STD * z[i]))}, published {text}"
    for x, y in BF16_NEAREST:
        if bf16_bits(from_bits(int(x, 16))) != int(y, 16):
            yield f"bf16 {x}: {bf16_bits(from_bits(int(x, 16))):04x}, expected {y}"


def content():
    names = ("tensor", "row", "col", "step", "stream")
    z = normals(NORMAL_SEED, 0, 0, 8)
    return {
        "philox": [
            {"counter": c.split(), "key": k.split(), "output": o.split()} for c, k, o in PHILOX
        ],
        "words": [
            {"seed": f"{WORD_SEED:016x}", **dict(zip(names, p)), "word": w} for p, w in WORDS
        ],
        "init": {
            "seed": NORMAL_SEED,
            "tensor": 0,
            "row": 0,
            "words": NORMAL_WORDS.split(),
            "normals": z,
            "std": INIT_STD,
            "values": [hex32(F32(INIT_STD * x)) for x in z],
        },
        "bf16_nearest": [{"x": x, "bf16": y} for x, y in BF16_NEAREST],
    }


def main():
    wrong = list(disagreements())
    if wrong:
        sys.exit("\n".join(wrong))
    (FOLDER / "numerics_golden.json").write_text(json.dumps(content(), indent=1) + "\n")
    print("all published values reproduced")


if __name__ == "__main__":
    main()
