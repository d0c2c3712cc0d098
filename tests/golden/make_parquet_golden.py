#!/usr/bin/env python3
"""Writes parquet/: small files of one table by pyarrow, in every supported encoding, and
documents.jsonl with the same text; files that are refused; zstd files by the zstandard library.

    make_parquet_golden.py                     # pyarrow 26.0.1, zstandard 0.25.0
    make_parquet_golden.py --large DIRECTORY   # larger files for manual tests
"""

import argparse
import gzip
import json
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

HERE = pathlib.Path(__file__).resolve().parent / "parquet"
SYLLABLES = ["ka", "lo", "mi", "ter", "an", "su", "ben", "dor", "eli", "fra", "Äpf", "🍎", "漢"]


def documents(count, seed, longest=60):
    """Texts of one to `longest` words, some equal, some empty, and None for missing ones."""
    rng = random.Random(seed)
    texts = []
    for i in range(count):
        if i % 17 == 5:
            texts.append(None)
        elif i % 23 == 7:
            texts.append("")
        elif i % 11 == 3:
            texts.append("The same text in many rows.\n\nAnd its second paragraph.")
        else:
            words = [
                "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3)))
                for _ in range(rng.randint(1, longest))
            ]
            texts.append(" ".join(words))
    return texts


def table(texts, nullable=True):
    """FineWeb-Edu's layout: other columns, some nested, on both sides of the text."""
    n = len(texts)
    values = texts if nullable else [text or "" for text in texts]
    columns = {
        "id": pa.array([f"<urn:uuid:{i:08x}>" for i in range(n)]),
        "meta": pa.array([{"url": f"https://a.org/{i}", "n": [i, i + 1]} for i in range(n)]),
        "text": pa.array(values, pa.string()),
        "tags": pa.array([["a", "b"][: i % 3] for i in range(n)]),
        "score": pa.array([i / 7 for i in range(n)]),
    }
    fields = [
        pa.field(name, column.type, nullable=nullable or name != "text")
        for name, column in columns.items()
    ]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def write(name, data, **options):
    path = HERE / f"{name}.parquet"
    pq.write_table(data, path, **options)


def write_accepted(data, required):
    small_pages = {"data_page_size": 512, "write_batch_size": 8}
    for codec in ("none", "snappy", "gzip", "zstd"):
        for version in ("1.0", "2.0"):
            write(
                f"{codec}_v{version[0]}",
                data,
                compression=codec,
                data_page_version=version,
                row_group_size=30,
                **small_pages,
            )
    for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        for version in ("1.0", "2.0"):
            write(
                f"{encoding.lower()}_v{version[0]}",
                data,
                use_dictionary=False,
                column_encoding={"text": encoding},
                data_page_version=version,
                row_group_size=45,
                **small_pages,
            )
    # A dictionary that grows too large: later pages are plain.
    write("fallback", data, dictionary_pagesize_limit=1024, **small_pages)
    write("checksums", data, write_page_checksum=True, **small_pages)
    write("required", required, compression="snappy")
    write("required_v2", required, compression="zstd", data_page_version="2.0")
    write("large_strings", data.set_column(2, "text", data["text"].cast(pa.large_string())))
    write("binary", data.set_column(2, "text", data["text"].cast(pa.binary())))
    write("categories", data.set_column(2, "text", data["text"].dictionary_encode()))
    write("no_rows", data.slice(0, 0))
    write("nulls", data.set_column(2, "text", pa.nulls(len(data), pa.string())), compression="zstd")
    write("null_type", data.set_column(2, "text", pa.nulls(len(data))), row_group_size=30)


def write_refused(data):
    write("lz4", data.slice(0, 3), compression="lz4")
    write("brotli", data.slice(0, 3), compression="brotli")
    write("no_text", data.drop_columns("text"))
    write("nested_text", data.set_column(2, "text", data["tags"]))
    write("number_text", data.set_column(2, "text", data["score"]))
    write("bad_utf8", pa.table({"text": pa.array([b"good", b"b\xff", b"fine"], pa.binary())}))
    keys = pa.table({"text": pa.array([b"a"], pa.binary(1))})
    write("fixed_length", keys)


def write_tiny():
    """Writes seeds of the fuzz target (tests/fuzz/make_seeds.py): a few rows in every encoding."""
    long = "word " * 40
    texts = ["First.", None, "Zweiter Text 🍎", "First.", "", long, long + "end", "First."]
    data = pa.table({"n": pa.array(range(8)), "text": pa.array(texts)})
    for codec in ("none", "snappy", "gzip", "zstd"):
        write(f"tiny_{codec}", data, compression=codec, row_group_size=5)
    for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        write(
            f"tiny_{encoding.lower()}",
            data,
            compression="none",
            use_dictionary=False,
            column_encoding={"text": encoding},
            data_page_version="2.0" if encoding == "PLAIN" else "1.0",
            write_page_checksum=encoding == "PLAIN",
        )
    write("tiny_zstd_v2", data, compression="zstd", data_page_version="2.0")
    write("tiny_null_type", pa.table({"n": pa.array(range(8)), "text": pa.nulls(8)}))


def write_zstd(lines):
    text = lines.encode()
    packer = zstandard.ZstdCompressor(level=3, write_checksum=True)
    half = len(text) // 2
    frames = packer.compress(text[:half]) + packer.compress(text[half:])
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00any."
    (HERE / "documents.jsonl.zst").write_bytes(skippable + frames + packer.compress(b""))


def write_goldens():
    HERE.mkdir(exist_ok=True)
    texts = documents(100, seed=1, longest=40)
    lines = "".join(json.dumps({"text": text or ""}, ensure_ascii=False) + "\n" for text in texts)
    (HERE / "documents.jsonl").write_text(lines, encoding="utf-8")
    data, required = table(texts), table(texts, nullable=False)
    write_accepted(data, required)
    write_refused(data)
    write_tiny()
    write_zstd(lines)


def write_large(directory):
    """Writes the same 40,000 documents in the layouts of FineWeb-Edu, Dolma and C4."""
    texts = documents(40_000, seed=2, longest=600)
    directory.mkdir(parents=True, exist_ok=True)
    half = len(texts) // 2

    for number, part in enumerate((texts[:half], texts[half:])):
        pq.write_table(table(part), directory / f"000_{number:05}.parquet", row_group_size=1000)
        lines = "".join(json.dumps({"id": i, "text": t or ""}) + "\n" for i, t in enumerate(part))
        packer = zstandard.ZstdCompressor(level=3)
        (directory / f"dolma-{number:04}.jsonl.zst").write_bytes(packer.compress(lines.encode()))
        name = f"c4-train.{number:05}-of-00002.json.gz"
        (directory / name).write_bytes(gzip.compress(lines.encode(), mtime=0))
        (directory / f"plain-{number}.jsonl").write_text(lines, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=pathlib.Path)
    options = parser.parse_args()
    if options.large:
        write_large(options.large)
    else:
        write_goldens()


if __name__ == "__main__":
    main()
