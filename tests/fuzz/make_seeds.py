#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: for every reader a few small files that it accepts, and
some that are broken in a way of their own.

    tests/fuzz/make_seeds.py [DIRECTORY]        # default: corpus/ beside this file

A second run gives the same bytes. Files named found_* are inputs that a fuzzer found; they stay.
"""

import base64
import json
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DIVIDER = b"\n---\n"  # of the files within one input: next_part() of input_directory.h


def json_bytes(value):
    return json.dumps(value, separators=(",", ":")).encode()


# --- safetensors ----------------------------------------------------------------------------------


def safetensors(header, data, length=None):
    text = header if isinstance(header, bytes) else json_bytes(header)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    two = {"a": entry("F32", [2, 3], 0, 24), "b": entry("BF16", [4], 24, 32)}
    valid = safetensors({"__metadata__": {"format": "pt"}, **two}, bytes(range(32)))
    all_types = {}
    offset = 0
    sizes = {"F32": 4, "BF16": 2, "I32": 4, "U8": 1, "F16": 2, "F8_E4M3": 1, "F8_E8M0": 1}
    for dtype, size in {**sizes, "I16": 2, "I8": 1}.items():
        all_types[dtype.lower()] = entry(dtype, [3], offset, offset + 3 * size)
        offset += 3 * size
    scalars = {"scalar": entry("F32", [], 0, 4), "empty": entry("F32", [0, 7], 4, 4)}
    huge = {"a": entry("F32", [1 << 40, 1 << 40], 0, 8)}
    return {
        "valid": valid,
        "valid_all_types": safetensors(all_types, bytes(offset)),
        "valid_scalar_and_empty": safetensors(scalars, bytes(4)),
        "valid_no_tensors": safetensors({}, b""),
        "truncated": valid[:-5],
        "header_of_terabytes": safetensors(two, bytes(32), 1 << 42),
        "header_of_the_limit": safetensors(two, bytes(32), 100_000_000),
        "shape_overflows": safetensors(huge, bytes(8)),
        "hole": safetensors({"a": entry("U8", [4], 4, 8)}, bytes(8)),
        "overlap": safetensors(
            {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)
        ),
        "beyond_the_end": safetensors({"a": entry("U8", [9], 0, 9)}, bytes(8)),
        "twice": safetensors(
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            bytes(1),
        ),
        "deep": safetensors(b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", b""),
        "negative_and_real": safetensors(
            b'{"a":{"dtype":"U8","shape":[-1,1e3],"data_offsets":[-1,18446744073709551615]}}', b""
        ),
        "index_file": b'{"weight_map":{"a":"../../model.safetensors"}}',
    }


# --- configurations -------------------------------------------------------------------------------


def defaults_of(schema):
    """All keys of the schema with their defaults, and some value where there is none."""
    if "properties" in schema:
        return {
            key: defaults_of(value)
            for key, value in schema["properties"].items()
            if key not in ("$schema", "include") and not value.get("deprecated")
        }
    if "enum" in schema:
        return schema.get("default", schema["enum"][0])
    return schema.get("default", 1 if "string" not in schema.get("type", []) else "some")


def run_config_seeds():
    schema = json.loads((ROOT / "configs/schema.json").read_text(encoding="utf-8"))
    model = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }
    optimizer = {"rule": "m_plus_adam", "lr_additive": 0.01, "lr_multiplicative": 0.01}
    small = {
        "name": "small",
        "model": model,
        "batch": {"seq_len": 16, "tokens_per_step": 32},
        "optimizer": optimizer,
        "train": {"steps": 5},
    }
    rules = [
        name for name in schema["properties"]["optimizer"]["properties"]["rule"]["enum"] if name
    ]
    seeds = {
        "valid_small": json_bytes(small),
        "every_key": json.dumps(defaults_of(schema), indent=1).encode(),
        "valid_parts": json_bytes(
            {"include": ["part_1.json", "part_2.json"], "train": {"steps": None, "tokens": 640}}
        )
        + DIVIDER
        + json_bytes(small)
        + DIVIDER
        + b'{"include":["part_3.json"],"optimizer":{"rule":"adamw","lr_multiplicative":null}}'
        + DIVIDER
        + b'// with comments\n{"optimizer": /* here */ {"eps": 1e-10}}',
        "includes_itself": b'{"include":["part_1.json"]}' + DIVIDER + b'{"include":["run.json"]}',
        "includes_nothing": b'{"include":["no.json", "..", "."]}',
        "includes_no_list": b'{"include":"part_1.json"}',
        "unknown_keys": b'{"name":"a","steps":5,"model":{"layers":3},"optimizer":{"rule":"adam"}}',
        "wrong_types": b'{"name":1,"model":[],"batch":{"seq_len":1.5,"tokens_per_step":-1},'
        b'"train":{"steps":"5"},"seed":18446744073709551615}',
        "large_numbers": json_bytes(
            {
                **small,
                "model": {**model, "vocab_size": 2**31 - 1, "hidden_size": 2**20},
                "train": {"chinchilla": 1e6},
            }
        ),
        "twice": b'{"name":"a",\n"name":"b"}',
        "deep": b'{"a":' * 70 + b"1" + b"}" * 70,
        "number_beyond_double": b'{"name":"a","optimizer":{"lr_additive":1e999}}',
        "not_utf8": b'{"name":"\xff\xfe"}',
        "unfinished": b'{"name":"a","model":{"hidden_size":',
        "empty": b" \n",
    }
    for rule in rules:
        seeds[f"rule_{rule}"] = json_bytes(
            {**small, "optimizer": {"rule": rule, "lr_additive": 0.01}}
        )
    return seeds


# --- tasks ----------------------------------------------------------------------------------------


def task(name, *examples):
    """The name of a task, and its lines."""
    lines = [x if isinstance(x, bytes) else json_bytes(x) for x in examples]
    return b"\n".join([name.encode(), *lines]) + b"\n"


def task_seeds():
    hellaswag = {
        "activity_label": "Home",
        "ctx_a": " [header] How [title] Fill it.",
        "ctx_b": "\u01c6TH\u00c9 \u03a3",
        "endings": ["[step] a  b", "[x", "\u00a0", ""],
        "label": "2",
    }
    arc = {
        "question": "Why?",
        "choices": {"text": ["a", "b"], "label": ["A", "B"]},
        "answerKey": "B",
    }
    piqa = {"goal": "g", "sol1": "x", "sol2": "y", "label": 1}
    return {
        "valid_hellaswag": task("hellaswag", hellaswag, hellaswag | {"label": 0}),
        "valid_arc": task("arc_easy", arc, arc | {"id": [1, {"a": None}]}),
        "valid_piqa": task("piqa", piqa, b" \r", piqa),
        "valid_lambada": task("lambada_openai", {"text": "the last  word"}, {"text": ""}),
        "answer_outside": task("piqa", piqa | {"label": 2}),
        "no_label": task("hellaswag", hellaswag | {"label": ""}),
        "no_endings": task("hellaswag", hellaswag | {"endings": []}),
        "endings_of_numbers": task("hellaswag", hellaswag | {"endings": ["a", 1]}),
        "label_too_few": task(
            "arc_challenge", arc | {"choices": {"text": ["a", "b"], "label": ["A"]}}
        ),
        "field_missing": task("piqa", {"goal": "g"}),
        "list": task("lambada_openai", ["text"]),
        "not_utf8": task("lambada_openai", b'{"text":"a\xffb"}'),
        "half_a_surrogate": task("lambada_openai", b'{"text":"\\ud800"}'),
        "valid_other_fields": task(
            "lambada_openai", b'{"x":[1e999,NaN,-Infinity],"text":"a","y":"\\ud83d\xff"}'
        ),
        "deep": task("lambada_openai", b'{"text":"a","x":' + b"[" * 2000 + b"]" * 2000 + b"}"),
        "cut": task("piqa", b'{"goal":'),
        "no_task": task("copa", piqa),
    }


# --- corpora --------------------------------------------------------------------------------------

LONG_LINE = b"word " * 60


def jsonl_seeds():
    return {
        "valid": b'{"text":"One document.\\nIts second."}\n{"text":"\\u00c4pfel \\ud83c\\udf4e"}\n',
        "valid_other_fields": b'{"url":"x","text":"a","meta":{"n":[1,2.5e3,null,true]}}\r\n',
        "valid_other_fields_of_any_kind": (
            b'{"x":[1e999,NaN,-Infinity],"text":"a","y":"\\ud83d\xff"}'
        ),
        "valid_blank_lines_and_documents": b'\n \t\n{"text":""}\n{"text":"  "}\n{"text":"b"}',
        "valid_byte_order_mark": b'\xef\xbb\xbf{"text":"a"}\n',
        "valid_long": b'{"text":"' + LONG_LINE + b'"}\n{"text":"' + b"x" * 70 + b'"}\n',
        "valid_long_without_spaces": b'{"text":"' + "Ä🍎".encode() * 40 + b'"}\n',
        "list": b'[{"text":"a"}]\n',
        "spread_object": b'{\n  "text": "a"\n}\n',
        "no_field": b'{"content":"a","title":"b"}\n{}\n',
        "not_a_string": b'{"text":["a"]}\n{"text":null}\n7\n"text"\n',
        "twice": b'{"text":"a","text":"b"}\n',
        "not_json": b'{"text":"a}\nno json\n{"text":"b"} trailing\n',
        "not_utf8": b'{"text":"a\xffb"}\n{"text":"\\ud800"}\n{"text":"c"}\n',
        "nul_bytes": b'{"text":"a\\u0000b"}\n\x00\x00\n',
        "deep": b'{"text":"a","x":' + b"[" * 2000 + b"]" * 2000 + b"}\n",
    }


def text_seeds():
    return {
        "valid": b"First document,\nits second line.\n\nSecond document.\n",
        "valid_windows": b"First.\r\nLine.\r\n\r\n\r\nSecond.\r\n",
        "valid_byte_order_mark": b"\xef\xbb\xbfText.\n",
        "valid_no_last_line_end": b"a\n\nb",
        "valid_blank": b" \n\t\n\n",
        "valid_long": LONG_LINE + b"\n" + b"x" * 70 + b"\n\n" + LONG_LINE,
        "valid_long_without_spaces": "Ä🍎".encode() * 40 + b"\n",
        "valid_line_ends": b"\r\r\n\n\r\na\rb\n\r",
        "not_utf8": b"good\n\nbad \xff\xc3\n\nb\xe2\x96\ngood\n",
        "nul_bytes": b"a\x00b\n\x00\n\nc\n",
        "empty": b"",
    }


def gzip(content, level=9, name=b""):
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = packer.compress(content) + packer.flush()
    flags = 8 if name else 0
    header = (
        b"\x1f\x8b\x08" + bytes([flags]) + bytes(4) + b"\x02\xff" + (name + b"\0" if name else b"")
    )
    return header + body + struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)


def gzip_seeds():
    one, two = gzip(b"First.\n\nSecond.\n"), gzip(b"\nThird.\n", 0, b"third.txt")
    wrong_sum = bytearray(one)
    wrong_sum[-8] ^= 1
    return {
        "valid": one,
        "valid_stored": two,
        "valid_members": one + two + gzip(b"") + one,
        "valid_padded": one + bytes(100),
        "valid_padded_member": one + bytes(7) + two,
        "not_gzip_afterwards": one + b"\0\0text",
        "half_a_magic_afterwards": one + b"\x1f",
        "truncated": one[:-10],
        "truncated_header": one[:5],
        "wrong_checksum": bytes(wrong_sum),
        "wrong_method": b"\x1f\x8b\x09" + one[3:],
        "all_flags": b"\x1f\x8b\x08\xff" + one[4:],
        "valid_unpacks_to_much": gzip(b"word " * 100_000),
        "valid_unpacks_to_one_line": gzip(b"x" * 500_000),
        "plain_text": b"Not compressed.\n",
        "empty": b"",
    }


def zstd(content, repeat=1, flags=0x20):
    """A frame of blocks that are not packed, each `repeat` times by a run where it is one byte."""
    blocks = b""
    kind, size = (1, repeat) if len(content) == 1 else (0, len(content))
    blocks += struct.pack("<I", size << 3 | kind << 1 | 1)[:3] + content
    return b"\x28\xb5\x2f\xfd" + bytes([flags, size & 0xFF] if size < 256 else []) + blocks


def zstd_seeds():
    packed = (ROOT / "tests/golden/parquet/documents.jsonl.zst").read_bytes()
    one = zstd(b"First.\n\nSecond.\n")
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0any"
    window = b"\x28\xb5\x2f\xfd\0"  # and then its size
    run = b"\x02\x00\x10x" + b"\x03\x00\x10\n"  # of 128 KiB each
    return {
        "valid": one,
        "valid_frames": one + skipped + one + zstd(b"x", 200),
        "valid_packed": packed,
        "valid_unpacks_to_much": window + b"\x38" + run,
        "valid_unpacks_to_blank_lines": window + b"\x38" + 63 * b"\x02\x00\x10\n" + run[4:],
        "window_of_gigabytes": window + b"\xa8" + run,
        "window_of_128_mib": window + b"\x88" + run,
        "not_zstd_afterwards": one + b"text",
        "truncated": one[:-4],
        "truncated_packed": packed[:-40],
        "magic_alone": one[:4],
        "skips_beyond_the_end": skipped[:4] + b"\xff\xff\xff\xff",
        "wrong_checksum": packed[:-14] + bytes([packed[-14] ^ 1]) + packed[-13:],
        "plain_text": b"Not compressed.\n",
        "empty": b"",
    }


def compact(fields):
    """A structure in Thrift's compact protocol: numbers, bytes, structures and lists of these."""

    def value_of(value):
        if isinstance(value, int):
            return 6, varint(value << 1 ^ value >> 63)
        if isinstance(value, bytes):
            return 8, varint(len(value)) + value
        if isinstance(value, dict):
            return 12, compact(value)
        return 9, b"\xfc" + varint(len(value)) + b"".join(compact(item) for item in value)

    out = b""
    for number, value in fields.items():
        kind, content = value_of(value)
        out += bytes([kind]) + varint(number << 1) + content
    return out + b"\0"


def parquet_page(content, values, size=None, encoding=0):
    size = len(content) if size is None else size
    levels = {1: values, 2: encoding, 3: 3, 4: 3}
    return compact({1: 0, 2: size, 3: len(content), 5: levels}) + content


def parquet(pages, rows, codec=0, optional=0, groups=1, **changes):
    """A file of one column; `changes` of the description of its row group, there `groups` times."""
    column = {1: 6, 4: codec, 5: rows, 6: len(pages), 7: len(pages), 9: 4}
    column.update({int(key[1:]): value for key, value in changes.items()})
    schema = [{4: b"schema", 5: 1}, {1: 6, 3: optional, 4: b"text", 6: 0}]
    group = {1: [{2: 4, 3: column}], 2: len(pages), 3: column[5]}
    footer = compact({1: 1, 2: schema, 3: rows, 4: [group] * groups})
    return b"PAR1" + pages + footer + struct.pack("<I", len(footer)) + b"PAR1"


def parquet_seeds():
    texts = [b"First.", b"", "Äpfel 🍎".encode(), LONG_LINE]
    plain = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    page = parquet_page(plain, 4)
    goldens = sorted((ROOT / "tests/golden/parquet").glob("tiny_*.parquet"))
    nulls = struct.pack("<I", 4) + varint(1_000_000 << 1) + b"\0"
    dictionary = compact({1: 2, 2: 10, 3: 10, 7: {1: 1, 2: 0}}) + struct.pack("<I", 6) + b"words "
    run = parquet_page(b"\1" + varint(1_000_000 << 1) + b"\0", 1_000_000, encoding=8)
    shared = b"\x80\1\4" + varint(100_000) + b"\0\0\0\0\0\0"
    valid = parquet(page, 4)
    return {
        **{"valid_" + path.stem: path.read_bytes() for path in goldens},
        "valid_by_hand": valid,
        "valid_two_pages": parquet(page + page, 8),
        "valid_million_nulls": parquet(parquet_page(nulls, 1_000_000), 1_000_000, optional=1),
        "valid_million_of_one_string": parquet(
            dictionary + run, 1_000_000, _9=4 + len(dictionary), _11=4
        ),
        "row_groups_overlap": parquet(page, 4, groups=2),
        "rows_of_terabytes": parquet(page, 1 << 40),
        "more_rows_than_texts": parquet(page, 5),
        "fewer_rows_than_texts": parquet(page, 3),
        "page_of_gigabytes": parquet(parquet_page(plain, 4, size=0x7FFFFFFF), 4, codec=1),
        "page_of_a_hundred_times": parquet(parquet_page(plain, 4, size=1 << 24), 4, codec=6),
        "dictionary_missing": parquet(run, 1_000_000),
        "two_dictionaries": parquet(dictionary * 2 + run, 1_000_000, _9=500, _11=4),
        "many_lengths": parquet(parquet_page(shared, 100_000, encoding=7), 100_000),
        "pages_outside": parquet(page, 4, _9=1 << 50),
        "pages_before": parquet(page, 4, _9=-5),
        "too_many_bytes": parquet(page, 4, _7=1 << 40),
        "unknown_codec": parquet(page, 4, codec=99),
        "no_pages": parquet(b"", 4),
        "deep": b"PAR1" + b"\x1c" * 500 + struct.pack("<I", 500) + b"PAR1",
        "footer_of_gigabytes": valid[:-8] + b"\xff\xff\xff\xffPAR1",
        "encrypted": valid[:-4] + b"PARE",
        "truncated": valid[:-9],
        "magic_alone": b"PAR1PAR1PAR1",
        "not_parquet": b'{"text":"a"}\n',
        "empty": b"",
    }


# --- token shards ---------------------------------------------------------------------------------


def shard(magic, version, tokens, payload):
    return struct.pack("<3i", magic, version, tokens) + bytes(1024 - 12) + payload


def token_shard_seeds():
    narrow, wide = struct.pack("<5H", 1, 2, 3, 50256, 0), struct.pack("<3I", 1, 128000, 2)
    valid = shard(20240520, 1, 5, narrow)
    return {
        "valid_uint16": valid,
        "valid_uint32": shard(20240801, 7, 3, struct.pack("<3I", 1, 50000, 2)),
        "outside_the_vocabulary": shard(20240520, 1, 2, struct.pack("<2H", 1, 65535)),
        "outside_int32": shard(20240801, 7, 1, struct.pack("<I", 0xFFFFFFFF)),
        "wide_tokens": shard(20240801, 7, 3, wide),
        "truncated": valid[:-1],
        "too_long": valid + b"\0",
        "header_alone": valid[:1024],
        "no_header": valid[:11],
        "no_tokens": shard(20240520, 1, 0, b""),
        "negative_tokens": shard(20240520, 1, -5, narrow),
        "tokens_of_gigabytes": shard(20240801, 7, 0x7FFFFFFF, narrow),
        "other_version": shard(20240520, 2, 5, narrow),
        "other_magic": shard(20240521, 1, 5, narrow),
        "empty": b"",
    }


def document_index_seeds():
    def index(documents, tokens, starts):
        return b"MPTDOCS1" + struct.pack(f"<{2 + len(starts)}Q", documents, tokens, *starts)

    return {
        "valid": index(3, 64, [0, 7, 63]),
        "valid_no_documents": index(0, 64, []),
        "of_another_shard": index(1, 65, [0]),
        "not_increasing": index(3, 64, [0, 7, 7]),
        "beyond_the_end": index(2, 64, [0, 1 << 63]),
        "documents_of_exabytes": index(1 << 61, 64, [0]),
        "count_wraps": index((1 << 64) - 3, 64, []),
        "half_a_number": index(1, 64, [0]) + b"\0\0\0",
        "magic_alone": b"MPTDOCS1",
        "other_magic": b"MPTDOCS2" + bytes(16),
        "empty": b"",
    }


def manifest_seeds():
    hash_of = "0123456789abcdef0123456789abcdef"
    listed = {"file": "train_000000.bin", "tokens": 5, "hash": hash_of}
    split = {
        "documents": 2,
        "tokens": 5,
        "text_bytes": 20,
        "unigram_entropy_nats": 1.5,
        "shards": [listed],
    }
    valid = {
        "format": "mpretrain token shards",
        "format_version": 1,
        "tokenizer": {
            "file": "tokenizer.model",
            "hash": hash_of,
            "vocab_size": 300,
            "bos_id": 1,
            "eos_id": 2,
        },
        "splits": {"train": split},
        "options": {"seed": 1},
    }

    def with_shard(**changes):
        return json_bytes(
            {**valid, "splits": {"train": {**split, "shards": [{**listed, **changes}]}}}
        )

    return {
        "valid": json_bytes(valid),
        "no_splits": json_bytes({**valid, "splits": {}}),
        "other_format": json_bytes({**valid, "format": "webdataset"}),
        "other_version": json_bytes({**valid, "format_version": 2}),
        "elsewhere": with_shard(file="../../etc/passwd"),
        "parent": with_shard(file=".."),
        "negative": with_shard(tokens=-5),
        "large": with_shard(tokens=18446744073709551615),
        "real": with_shard(tokens=5.5),
        "sum_differs": with_shard(tokens=6),
        "list": b"[]",
        "deep": b'{"format":' + b"[" * 100 + b"]" * 100 + b"}",
        "twice": b'{"format":"a","format":"mpretrain token shards"}',
        "not_utf8": b'{"format":"\xff"}',
        "empty": b"",
    }


# --- tokenizers -----------------------------------------------------------------------------------


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field of a protocol buffer: an integer, a float or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, score=0.0, kind=1):
    return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPECIAL = piece("<unk>", 0.0, UNKNOWN) + piece("<s>", 0.0, CONTROL) + piece("</s>", 0.0, CONTROL)
WORDS = ["▁", "t", "h", "e", "▁t", "he", "▁the", "y", "a", "r", "d", "n", "▁a", "nd"]


def model(pieces, kind, byte_fallback=0, character_map=b"", clean_spaces=0):
    trainer = field(3, kind) + field(35, byte_fallback)
    trainer += field(40, 0) + field(41, 1) + field(42, 2) + field(43, -1)
    normalizer = field(1, b"identity") + (field(2, character_map) if character_map else b"")
    normalizer += field(3, 1) + field(4, clean_spaces) + field(5, 1)
    return pieces + field(2, trainer) + field(3, normalizer)


def tokenizer_seeds():
    unigram, bpe, word, char = 1, 2, 3, 4
    words = b"".join(piece(text, -float(i)) for i, text in enumerate(WORDS))
    byte_pieces = [piece(f"<0x{i:02X}>", 0.0, BYTE) for i in range(256)]
    every_byte = b"".join(byte_pieces)
    valid = model(SPECIAL + every_byte + words, bpe, byte_fallback=1)
    return {
        "valid_bpe_with_bytes": valid,
        "valid_bpe": model(SPECIAL + words, bpe),
        "valid_unigram": model(SPECIAL + words, unigram, clean_spaces=1),
        "valid_word": model(SPECIAL + words, word),
        "valid_char": model(SPECIAL + words, char),
        "valid_user_defined": model(SPECIAL + words + piece("19", 0.0, USER_DEFINED), bpe),
        "valid_unused": model(SPECIAL + words + piece("ar", -20.0, UNUSED), bpe),
        "some_bytes": model(SPECIAL + b"".join(byte_pieces[:200]) + words, bpe, byte_fallback=1),
        "no_unknown": model(words, bpe),
        "two_unknown": model(SPECIAL + SPECIAL + words, bpe),
        "empty_piece": model(SPECIAL + words + piece(""), bpe),
        "piece_twice": model(SPECIAL + words + words, bpe),
        "not_utf8_piece": model(SPECIAL + words + field(1, field(1, b"\xff\xc3")), bpe),
        "score_not_a_number": model(SPECIAL + words + piece("19", float("nan")), unigram),
        "other_kind": model(SPECIAL + words, 9),
        "character_map": model(
            SPECIAL + words, unigram, character_map=struct.pack("<I", 4) + bytes(8)
        ),
        "character_map_of_gigabytes": model(
            SPECIAL + words, unigram, character_map=struct.pack("<I", 0xFFFFFFFC) + bytes(8)
        ),
        "truncated": valid[: len(valid) // 2],
        "long_length": b"\x0a\xff\xff\xff\xff\x0f",
        "text": b"not a model\n",
        "empty": b"",
    }


def byte_pieces():
    """Byte-level characters of all bytes: a small vocabulary with ids from 0 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def added(content, number, **options):
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": content, **plain, **options}


def tokenizer_json_seeds():
    pieces = [*byte_pieces(), "th", "the", "aa", "aaaa"]
    merges = ["t h", ["th", "e"], "a a", "aa aa"]
    options = {"add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    byte_level = {"type": "ByteLevel", **options}
    valid = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added("<|endoftext|>", len(pieces), special=True)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": merges,
        },
    }
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    words = [["<unk>", 0.0], *([text, -float(i)] for i, text in enumerate(WORDS))]
    unigram = {
        **valid,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": metaspace,
        "post_processor": None,
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": words},
    }
    llama = {
        **unigram,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {text: i for i, (text, _) in enumerate(words)},
            "merges": ["h e", "▁ t", "n d", "▁ a"],
        },
    }

    def split(pattern, behavior="Isolated", kind="Regex"):
        made = {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False}
        return {**valid, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [made, byte_level]}}

    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {
        "valid_byte_level": json_bytes(valid),
        "valid_unigram": json_bytes(unigram),
        "valid_characters": json_bytes(llama),
        "valid_split": json_bytes(split(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+")),
        "valid_contiguous": json_bytes(split("a", "Contiguous", "String")),
        "valid_digits": json_bytes(
            {
                **valid,
                "normalizer": None,
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
                },
            }
        ),
        "valid_nulls": json_bytes(
            {
                **valid,
                "pre_tokenizer": {**byte_level, "use_regex": None},
                "model": {**valid["model"], "dropout": None, "ignore_merges": None},
            }
        ),
        "catastrophic": json_bytes(split("(?:a+)+[bc]")),
        "matches_nothing": json_bytes(split("a*")),
        "large_pattern": json_bytes(split("((((a{999}){999}){999}){999}){999}")),
        "deep_pattern": json_bytes(split("(" * 4000)),
        "doubling": json_bytes(
            {**valid, "normalizer": {"type": "Sequence", "normalizers": [doubling] * 64}}
        ),
        "id_of_gigabytes": json_bytes(
            {**valid, "model": {**valid["model"], "vocab": {"a": 2**30}}}
        ),
        "merge_of_nothing": json_bytes({**valid, "model": {**valid["model"], "merges": ["a zz"]}}),
        "added_twice": json_bytes({**valid, "added_tokens": valid["added_tokens"] * 2}),
        "deep": b'{"model":' + b"[" * 5000,
        "twice": b'{"version":"1.0","version":"1.0"}',
        "not_utf8": b'{"version":"\xff"}',
        "empty": b"",
    }


def tiktoken_seeds():
    lines = [base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)]
    ranks = b"\n".join([*lines, b"dGg= 256", b"dGhl 257", b"YWE= 258"]) + b"\n"
    settings = json_bytes(
        {"pattern": "cl100k_base", "special_tokens": {"<e>": 300}, "eos_token": "<e>"}
    )
    return {
        "valid": settings + DIVIDER + ranks,
        "valid_pattern": json_bytes({"pattern": r"\S+|\s+"}) + DIVIDER + ranks,
        "pattern_with_gaps": json_bytes({"pattern": "[a-z]+"}) + DIVIDER + ranks,
        "no_pattern": b"{}" + DIVIDER + ranks,
        "no_settings": DIVIDER + ranks,
        "missing_byte": settings + DIVIDER + b"\n".join(lines[1:]),
        "long_piece": settings + DIVIDER + ranks + base64.b64encode(b"a" * 2000) + b" 400\n",
        "large_rank": settings + DIVIDER + ranks + b"YWFh 4294967295\n",
        "piece_twice": settings + DIVIDER + ranks + b"YWE= 259\n",
        "special_of_gigabytes": json_bytes({"pattern": "a", "special_tokens": {"b": 2**30}})
        + DIVIDER
        + ranks,
        "not_base64": settings + DIVIDER + b"!!!! 1\n",
        "empty": b"",
    }


# --- checkpoints ----------------------------------------------------------------------------------

STATE = {
    "format": "mpretrain checkpoint",
    "version": 2,
    "program": "0.2.0",
    "saved_at": "2026-05-31T23:59:59Z",
    "step": 5,
    "cursor": 10,
    "seed": 18446744073709551600,
    "tokens": 160,
    "config": {"model": {"hidden_size": 16}},
    "extra": {"loss": {"$nonfinite": "nan"}, "best": 1.5},
    "files": [
        {"name": "rank_00000_of_00001.safetensors", "bytes": 8, "hash": "00", "stretches": []}
    ],
}


def state(**changes):
    return json_bytes({**STATE, **changes})


def listed_file(**changes):
    return [{**STATE["files"][0], **changes}]


def stretch(first, count, shape, tensor="w"):
    return {"tensor": tensor, "shape": shape, "first": first, "count": count}


def checkpoint_state_seeds():
    version_1 = json.loads(
        (ROOT / "tests/golden/checkpoint_version_1/state.json").read_text(encoding="utf-8")
    )
    return {
        "valid": state(),
        "valid_version_1": json_bytes(version_1),
        "other_format": state(format="checkpoint"),
        "other_version": state(version=3),
        "real_version": state(version=1.5),
        "negative": state(step=-1),
        "real_step": state(step=1e300),
        "large_seed": state(seed=-1),
        "no_step": json_bytes({key: STATE[key] for key in STATE if key != "step"}),
        "valid_infinities": state(extra=[{"$nonfinite": "inf"}, {"$nonfinite": "-inf"}]),
        "no_infinity": state(extra={"$nonfinite": 1}),
        "elsewhere": state(files=listed_file(name="../state.json")),
        "hidden": state(files=listed_file(name=".x")),
        "files_of_numbers": state(files=[1, "a", None]),
        "files_object": state(files={"a": listed_file()[0]}),
        "stretch": state(files=listed_file(stretches=[stretch(2, 4, [2, 4])])),
        "stretch_overflows": state(
            files=listed_file(stretches=[stretch(2**62, 2**62, [2**62, 2])])
        ),
        "stretch_too_long": state(files=listed_file(stretches=[stretch(5, 2**63 - 1, [2, 4])])),
        "stretch_negative": state(files=listed_file(stretches=[stretch(-1, 4, [2, -4])])),
        "deep": b'{"format":' + b"[" * 100 + b"]" * 100 + b"}",
        "list": b"[]",
        "empty": b"",
    }


def checkpoint_seeds():
    def files(*stretches):
        return [{**STATE["files"][0], "stretches": list(one)} for one in stretches]

    def whole(shape, size):
        return safetensors({"w": entry("F32", shape, 0, size)}, bytes(range(size)))

    def flat(key, count):
        return safetensors({key: entry("F32", [count], 0, 4 * count)}, bytes(4 * count))

    def checkpoint(listed, *contents):
        return DIVIDER.join([state(files=listed), *contents])

    halves = files([stretch(0, 3, [2, 4])], [stretch(3, 5, [2, 4])])
    return {
        "valid_whole": checkpoint(files([]), whole([2, 3], 24)),
        "valid_halves": checkpoint(halves, flat("w@0", 3), flat("w@3", 5)),
        "overlap": checkpoint(
            files([stretch(0, 4, [2, 4])], [stretch(3, 5, [2, 4])]), flat("w@0", 4), flat("w@3", 5)
        ),
        "hole": checkpoint(
            files([stretch(0, 2, [2, 4])], [stretch(3, 5, [2, 4])]), flat("w@0", 2), flat("w@3", 5)
        ),
        "no_end": checkpoint(files([stretch(0, 3, [2, 4])]), flat("w@0", 3)),
        "shapes_differ": checkpoint(
            files([stretch(0, 3, [8])], [stretch(3, 5, [2, 4])]), flat("w@0", 3), flat("w@3", 5)
        ),
        "not_stored": checkpoint(files([stretch(0, 3, [3])]), flat("v@0", 3)),
        "stretch_twice": checkpoint(files([stretch(0, 3, [3])] * 2), flat("w@0", 3)),
        "in_both": checkpoint(files([], []), whole([2], 8), whole([2], 8)),
        "no_file": checkpoint([]),
        "valid_scalar": checkpoint(files([]), whole([], 4)),
        "valid_empty_tensor": checkpoint(
            files([]), safetensors({"w": entry("F32", [0, 2**40], 0, 0)}, b"")
        ),
        "damaged_file": checkpoint(files([]), whole([2, 3], 24)[:-3]),
        "no_state": DIVIDER + whole([2], 8),
    }


# --- models of Hugging Face -----------------------------------------------------------------------


def hugging_face_config_seeds():
    llama = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 101,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
    }
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    qwen3 = {
        **llama,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "num_key_value_heads": 2,
        "use_sliding_window": False,
    }
    seeds = {
        "valid": llama,
        "valid_grouped_and_tied": {
            **llama,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "head_dim": None,
        },
        "valid_llama3": {**llama, "rope_theta": 500000.0, "rope_scaling": llama3},
        "valid_parameters": {**llama, "rope_parameters": {**llama3, "rope_theta": 10000.0}},
        "valid_linear": {**llama, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "valid_qwen3": qwen3,
        "other_model": {**llama, "model_type": "gpt2"},
        "unknown_key": {**llama, "num_experts": 8},
        "biased": {**llama, "attention_bias": True},
        "huge": {**llama, "hidden_size": 1 << 62, "vocab_size": 1e300},
        "yarn": {**llama, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        "types": {**llama, "architectures": "LlamaForCausalLM", "rope_scaling": [1]},
    }
    return {
        **{name: json_bytes(value) for name, value in seeds.items()},
        "no_object": b"[]",
        "deep": b'{"rope_scaling":' * 300 + b"1" + b"}" * 300,
        "truncated": json_bytes(llama)[:-9],
    }


def tokenizer_settings_seeds():
    config = {
        "add_bos_token": True,
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "special": True},
        "added_tokens_decoder": {"1": {"content": "<s>"}, "5000": {"content": "<|im_end|>"}},
    }
    tokens = json_bytes({"<|im_start|>": 5001})
    generation = json_bytes({"bos_token_id": 1, "eos_token_id": [2, 5000], "pad_token_id": None})

    def files(settings, added_tokens=tokens, ids=generation):
        return DIVIDER.join((json_bytes(settings), added_tokens, ids))

    return {
        "valid": files(config),
        "valid_other_shapes": files([1], b"[]", b"{}"),
        "valid_strange_ids": files(
            {"added_tokens_decoder": {"": 1, "x": {}, "-9": "a", "99999999999999999999": []}},
            json_bytes({"a": -(2**63), "b": 2**64 - 1, "c": 1.5}),
            json_bytes({"eos_token_id": [-1, 2**31 - 1]}),
        ),
        "eos_of_text": files(config, tokens, json_bytes({"eos_token_id": "</s>"})),
        "many_ends": files(config, tokens, json_bytes({"eos_token_id": [1] * 65})),
        "large_id": files(config, tokens, json_bytes({"bos_token_id": 2**31})),
        "deep": b'{"bos_token":' + b"[" * 5000 + DIVIDER + tokens + DIVIDER + generation,
        "twice": b'{"a":1,"a":1}' + DIVIDER + tokens + DIVIDER + generation,
        "no_json": files(config, b"x"),
        "empty": b"",
    }


def safetensors_index_seeds():
    def index(**files):
        return json_bytes({"metadata": {"total_size": 8}, "weight_map": files})

    return {
        "valid": index(a="model-00001-of-00002.safetensors", b="model-00002-of-00002.safetensors"),
        "valid_one": index(a="model.safetensors"),
        "elsewhere": index(a="../model.safetensors"),
        "absolute": index(a="/etc/passwd"),
        "number": index(a=1),
        "no_map": b'{"metadata":{}}',
        "map_is_a_list": b'{"weight_map":["a"]}',
        "twice": b'{"weight_map":{"a":"x","a":"y"}}',
        "pickle": index(a="pytorch_model.bin"),
        "empty_name": index(a=""),
    }


def run_records_seeds():
    def lines(*records):
        return b"".join(json_bytes(record) + b"\n" for record in records)

    def step(number, **more):
        return {"step": number, "loss": 9.5 - number, "grad_norm": 1.0, "lr": 1e-3, **more}

    books = {"validation": {"books": {"loss": 3.0}}, "val_loss": 3.0, "tokens_per_second": 1e4}
    metrics = lines(step(1), step(2, **books), step(3, loss=None))
    resumed = {"event": "resume", "step": 1}
    samples = lines({"step": 2, "samples": [{"prompt": "The", "text": " <b>\u0000"}]})
    config = json_bytes({"name": "run", "train": {"steps": 3}, "seed": 1})
    report = json_bytes({"device": "CPU", "plan": {"steps": 3, "allocated_bytes": {"weights": 9}}})
    back = lines(step(1), step(2), resumed | {"reason": "rollback from step 2"}, step(2), resumed)
    edge = lines(
        step(2**63 - 1), resumed | {"step": 2**63 - 1}, step(-(2**63)), step(1, loss=1e308)
    )
    return {
        "valid": DIVIDER.join([metrics, samples, config, report]),
        "valid_alone": metrics,
        "valid_resumed": metrics + json_bytes(resumed) + b"\n" + metrics,
        "valid_rollback": back,
        "valid_torn": metrics + b'{"step": 4, "lo',
        "valid_edge": edge,
        "valid_types": lines(step(1), {"step": "2"}, [1], step(2, validation=[3], val_loss="x")),
        "valid_samples": DIVIDER.join([metrics, samples + b'{"step":1,"samples":[1]}\n{}']),
        "no_step": lines(resumed),
        "no_config": DIVIDER.join([metrics, b"", b"[]"]),
        "deep": DIVIDER.join([metrics, b"", b'{"a":' * 300 + b"1" + b"}" * 300]),
    }


SEEDS = {
    "safetensors": safetensors_seeds,
    "run_config": run_config_seeds,
    "jsonl_corpus": jsonl_seeds,
    "text_corpus": text_seeds,
    "gzip_corpus": gzip_seeds,
    "zstd_corpus": zstd_seeds,
    "parquet_corpus": parquet_seeds,
    "token_shard": token_shard_seeds,
    "document_index": document_index_seeds,
    "manifest": manifest_seeds,
    "task_examples": task_seeds,
    "run_records": run_records_seeds,
    "tokenizer": tokenizer_seeds,
    "tokenizer_json": tokenizer_json_seeds,
    "tiktoken": tiktoken_seeds,
    "checkpoint_state": checkpoint_state_seeds,
    "checkpoint": checkpoint_seeds,
    "hugging_face_config": hugging_face_config_seeds,
    "safetensors_index": safetensors_index_seeds,
    "tokenizer_settings": tokenizer_settings_seeds,
}


def main(arguments):
    corpus = pathlib.Path(arguments[0]) if arguments else HERE / "corpus"
    for name, seeds in SEEDS.items():
        directory = corpus / name
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.iterdir():
            if not old.name.startswith("found_"):
                old.unlink()
        for seed, content in seeds().items():
            (directory / seed).write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1:])
