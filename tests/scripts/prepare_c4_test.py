#!/usr/bin/env python3
"""Tests of scripts/prepare_c4.sh on a tiny tree in the published format, local and through a server
on loopback.

tests/scripts/prepare_c4_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]
"""

import contextlib
import gzip
import hashlib
import http.server
import json
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from tested_program import PROGRAM, main

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/prepare_c4.sh"
WORDS = "weights gradients step model of the token loss rounding été scale block".split()
SHARDS = 3  # of training text, and one for validation


def train_name(number):
    return f"c4-train.{number:05}-of-01024.json.gz"


VALIDATION_NAME = "c4-validation.00000-of-00008.json.gz"


def write_tree(directory):
    directory.mkdir(parents=True)
    draw = random.Random(3)
    for name in [*(train_name(number) for number in range(SHARDS)), VALIDATION_NAME]:
        lines = [
            json.dumps(
                {
                    "text": " ".join(draw.choices(WORDS, k=200)) + ".\n",
                    "timestamp": "2019-04-25T12:57:54Z",
                    "url": "about:blank",
                },
                separators=(",", ":"),
            )
            for _ in range(60)
        ]
        (directory / name).write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


class Server:
    """Serves a directory; can break off, stand still or know no ranges."""

    def __init__(self, directory):
        self.requests = []  # (path, Range or None) of everything but the probes for the first byte
        self.ranges = True
        self.cut_after = {}  # name: bytes after which the connection ends, once
        self.stall_after = {}  # name: bytes after which nothing comes until `go_on`
        self.claimed = {}  # name: bytes that a probe is told
        self.replacement = {}  # name: content given once
        self.go_on = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                with contextlib.suppress(ConnectionError):
                    outer.answer(self, directory)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/data"

    def answer(self, handler, directory):
        name = handler.path.removeprefix("/data/")
        path = directory / name
        asked = handler.headers.get("Range")
        probe = asked == "bytes=0-0"
        if not probe:
            self.requests.append((name, asked))
        if not path.is_file():
            handler.send_error(404)
            return
        content = path.read_bytes()
        if not probe and name in self.replacement:
            content = self.replacement.pop(name)
        first = 0
        if self.ranges and asked:
            begin, end = asked.removeprefix("bytes=").split("-")
            first = int(begin)
            handler.send_response(206)
            last, size = end or len(content) - 1, self.claimed.get(name, len(content))
            handler.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            body = content[first : int(end) + 1] if end else content[first:]
        else:
            handler.send_response(200)
            body = content
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", f'"{hashlib.sha256(path.read_bytes()).hexdigest()}"')
        handler.end_headers()
        if not probe and name in self.cut_after:
            handler.wfile.write(body[: self.cut_after.pop(name)])
            handler.wfile.flush()
            handler.connection.close()
            return
        if not probe and name in self.stall_after:
            stall = self.stall_after.pop(name)
            handler.wfile.write(body[:stall])
            handler.wfile.flush()
            self.go_on.wait(60)
            return
        handler.wfile.write(body)

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def wait_for(condition, what):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.01)


def run_mpretrain(*arguments):
    return subprocess.run(
        [PROGRAM[0], *map(str, arguments)], capture_output=True, text=True, check=True
    )


class Tree(unittest.TestCase):
    """A tree of C4, a tokenizer, and what the script makes of them where nothing goes wrong."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="prepare_c4_"))
        cls.tree = cls.shared / "tree"
        write_tree(cls.tree)
        cls.tokenizer = cls.shared / "small.model"
        run_mpretrain(
            "tokenizer",
            "--input",
            cls.tree / train_name(0),
            "--vocab-size",
            300,
            "--output",
            cls.tokenizer,
        )
        cls.wanted = cls.shared / "wanted"
        cls.must(cls.tree, cls.wanted)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=self.shared))
        self.output = self.directory / "out"

    @classmethod
    def command(cls, source, output, *more):
        arguments = (
            SCRIPT,
            "--program",
            PROGRAM[0],
            "--source",
            source,
            "--tokenizer",
            cls.tokenizer,
            "--output",
            output,
            "--shards",
            SHARDS,
            "--threads",
            1,
            *more,
        )
        return [str(argument) for argument in arguments]

    @classmethod
    def prepare(cls, source, output, *more, **settings):
        return subprocess.run(
            cls.command(source, output, *more),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **settings,
        )

    @classmethod
    def must(cls, source, output, *more, **settings):
        result = cls.prepare(source, output, *more, **settings)
        if result.returncode != 0:
            raise AssertionError(f"status {result.returncode}: {result.stderr}")
        return result

    def fails(self, status, parts, source, *more, **settings):
        """Exits with the status; the last line, and no other that is an error, has these parts."""
        result = self.prepare(source, self.output, *more, **settings)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(result.stderr.count("error"), 1, result.stderr)
        for part in parts:
            self.assertIn(str(part), result.stderr.splitlines()[-1])
        self.assertFalse((self.output / "manifest.json").exists())
        return result

    def serve(self):
        server = Server(self.tree)
        self.addCleanup(server.close)
        return server

    def copy_of_tree(self):
        tree = self.directory / "tree"
        shutil.copytree(self.tree, tree)
        return tree

    @staticmethod
    def files(directory):
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    def assert_as_wanted(self, output=None):
        self.assertEqual(self.files(output or self.output), self.files(self.wanted))

    def made_files(self, result):
        return sorted(
            line.split()[1].rstrip(":") for line in result.stderr.splitlines() if " done)" in line
        )

    def start(self, source, *more):
        process = subprocess.Popen(
            self.command(source, self.output, *more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()


class Output(Tree):
    def test_shards_and_sums_are_those_of_the_program_over_all_files(self):
        all_at_once = self.directory / "all"
        files = [self.tree / train_name(number) for number in range(SHARDS)]
        run_mpretrain(
            "tokenize", "--input", *files, "--tokenizer", self.tokenizer, "--output", all_at_once
        )
        wanted = json.loads((all_at_once / "manifest.json").read_text())
        manifest = json.loads((self.wanted / "manifest.json").read_text())
        self.assertEqual(manifest["tokenizer"], wanted["tokenizer"])
        train, wanted_train = manifest["splits"]["train"], wanted["splits"]["train"]
        for key in ("documents", "tokens", "text_bytes"):
            self.assertEqual(train[key], wanted_train[key])
        # Sums of 300 terms in another order at most.
        self.assertAlmostEqual(
            train["unigram_entropy_nats"], wanted_train["unigram_entropy_nats"], delta=1e-12
        )
        bodies = [(self.wanted / shard["file"]).read_bytes()[1024:] for shard in train["shards"]]
        self.assertEqual(b"".join(bodies), (all_at_once / "train_000000.bin").read_bytes()[1024:])
        self.assertEqual(len(manifest["splits"]["val"]["shards"]), 1)

    def test_manifest_tells_what_was_read(self):
        sources = json.loads((self.wanted / "manifest.json").read_text())["options"]["sources"]
        self.assertEqual(
            [source["file"] for source in sources],
            [*map(train_name, range(SHARDS)), VALIDATION_NAME],
        )
        for source in sources:
            content = (self.tree / source["file"]).read_bytes()
            self.assertEqual(source["bytes"], len(content))
            self.assertEqual(source["sha256"], hashlib.sha256(content).hexdigest())

    def test_program_trains_on_it(self):
        config = {
            "name": "small",
            "seed": 3,
            "model": {
                "hidden_size": 16,
                "intermediate_size": 20,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "vocab_size": 300,
            },
            "data": {
                "train": str(self.wanted / "train_*.bin"),
                "validation": str(self.wanted / "val_*.bin"),
                "tokenizer": str(self.wanted / "tokenizer.model"),
            },
            "batch": {"seq_len": 24, "tokens_per_step": 96},
            "optimizer": {"rule": "m_plus_adam", "lr_additive": 1e-2, "lr_multiplicative": 1e-2},
            "train": {"steps": 2},
            "device": {"type": "cpu", "threads": 1},
        }
        for pack in (True, False):
            config["data"]["pack"] = pack
            (self.directory / "config.json").write_text(json.dumps(config))
            command = [PROGRAM[0], "--config", "config.json", "--set", f"name=pack_{pack}"]
            result = subprocess.run(
                command, cwd=self.directory, capture_output=True, text=True, check=False
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("no manifest", result.stderr)

    def test_more_shards_are_added_and_finished_ones_need_no_source(self):
        first = self.must(self.tree, self.output, "--shards", 1)
        self.assertEqual(self.made_files(first), [train_name(0), VALIDATION_NAME])
        second = self.must(self.tree, self.output)
        self.assertEqual(self.made_files(second), [train_name(1), train_name(2)])
        self.assert_as_wanted()
        third = self.must("http://127.0.0.1:9/nothing", self.output)
        self.assertEqual(self.made_files(third), [])
        self.assert_as_wanted()

    def test_folder_en_inside_the_source(self):
        (self.directory / "c4").mkdir()
        (self.directory / "c4/en").symlink_to(self.tree)
        self.must(self.directory / "c4", self.output)
        self.assert_as_wanted()

    def test_a_finished_shard_that_is_gone_is_made_again(self):
        self.must(self.tree, self.output)
        (self.output / "train_000001.bin").unlink()
        result = self.must(self.tree, self.output)
        self.assertEqual(self.made_files(result), [train_name(1)])
        self.assert_as_wanted()


class Download(Tree):
    def test_download(self):
        server = self.serve()
        self.must(server.url, self.output)
        self.assert_as_wanted()
        names = [*map(train_name, range(SHARDS)), VALIDATION_NAME]
        self.assertEqual(sorted(server.requests), [(name, None) for name in names])
        self.assertEqual(list((self.output / ".prepare_c4/downloads").iterdir()), [])

    def test_kept_downloads_are_a_source(self):
        self.must(self.serve().url, self.output, "--keep-downloads")
        self.assertEqual(self.files(self.output / "downloads"), self.files(self.tree))
        other = self.directory / "other"
        self.must(self.output / "downloads", other)
        self.assert_as_wanted(other)

    def test_a_broken_connection_goes_on_where_it_broke(self):
        server = self.serve()
        server.cut_after[train_name(1)] = 1000
        self.must(server.url, self.output)
        self.assert_as_wanted()
        self.assertEqual(
            [asked for name, asked in server.requests if name == train_name(1)],
            [None, "bytes=1000-"],
        )

    def test_a_server_without_ranges_begins_again(self):
        server = self.serve()
        server.ranges = False
        server.cut_after[train_name(1)] = 1000
        self.must(server.url, self.output)
        self.assert_as_wanted()

    def test_killed_while_downloading_goes_on(self):
        server = self.serve()
        server.stall_after[train_name(0)] = 1500
        process = self.start(server.url, "--jobs", 1)
        part = self.output / ".prepare_c4/downloads" / (train_name(0) + ".part")
        wait_for(lambda: part.exists() and part.stat().st_size == 1500, "1500 bytes")
        self.kill(process)
        server.go_on.set()
        self.assertFalse((self.output / "manifest.json").exists())
        self.must(server.url, self.output)
        self.assert_as_wanted()
        self.assertEqual(
            [asked for name, asked in server.requests if name == train_name(0)],
            [None, "bytes=1500-"],
        )

    def test_a_part_of_another_file_is_thrown_away(self):
        server = self.serve()
        downloads = self.output / ".prepare_c4/downloads"
        downloads.mkdir(parents=True)
        (downloads / (train_name(0) + ".part")).write_bytes(b"x" * 500)
        (downloads / (train_name(0) + ".part.json")).write_text(
            '{"size": 600, "validator": "\\"other\\""}'
        )
        self.must(server.url, self.output)
        self.assert_as_wanted()

    def test_a_damaged_download_is_fetched_once_more(self):
        server = self.serve()
        damaged = bytearray((self.tree / train_name(2)).read_bytes())
        damaged[len(damaged) // 2] ^= 0x55
        server.replacement[train_name(2)] = bytes(damaged)
        result = self.must(server.url, self.output)
        self.assertIn(f"{train_name(2)}: damaged gzip data", result.stderr)
        self.assert_as_wanted()

    def test_offline(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/c4"
        self.fails(4, [f"{url}/{train_name(0)}", "Connection refused", "3 times"], url, "--jobs", 1)

    def test_a_file_that_the_server_lacks(self):
        server = self.serve()
        self.fails(
            1,
            [f"{server.url}/{train_name(SHARDS)}", "404", "/en/"],
            server.url,
            "--shards",
            SHARDS + 1,
        )
        self.assertEqual(server.requests, [], "nothing was downloaded first")


class Refusal(Tree):
    def test_a_missing_file(self):
        tree = self.copy_of_tree()
        (tree / train_name(1)).unlink()
        self.fails(1, [tree / train_name(1), "no such file", tree / "en" / train_name(1)], tree)

    def test_damaged_and_truncated_gzip_name_the_file_and_the_rest_is_kept(self):
        content = (self.tree / train_name(2)).read_bytes()
        flipped = bytearray(content)
        flipped[-6] ^= 1  # of the checksum
        for damaged in (bytes(flipped), content[:-100], content[:200], b"no gzip at all"):
            tree = self.copy_of_tree()
            (tree / train_name(2)).write_bytes(damaged)
            self.fails(1, [tree / train_name(2), "damaged gzip data"], tree, "--jobs", 1)
            shutil.rmtree(tree)
        result = self.must(self.tree, self.output, "--jobs", 1)
        self.assertEqual(self.made_files(result), [train_name(2), VALIDATION_NAME])
        self.assert_as_wanted()

    def test_a_line_that_is_no_document(self):
        tree = self.copy_of_tree()
        (tree / train_name(0)).write_bytes(gzip.compress(b'{"text": "good"}\n{"no": "text"}\n'))
        self.fails(1, [train_name(0)], tree)

    def test_another_tokenizer_is_refused(self):
        self.must(self.tree, self.output)
        other = self.directory / "other.model"
        run_mpretrain(
            "tokenizer",
            "--input",
            self.tree / train_name(1),
            "--vocab-size",
            "290",
            "--output",
            other,
        )
        result = self.prepare(self.tree, self.output, "--tokenizer", other)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("290", result.stderr.splitlines()[-1])
        self.assert_as_wanted()

    def test_a_tokenizer_of_another_kind(self):
        tokenizer = SCRIPT.parents[1] / "tests/golden/subword/gpt2.json"
        self.must(self.tree, self.output, "--tokenizer", tokenizer, "--shards", 1)
        self.assertEqual((self.output / "tokenizer.json").read_bytes(), tokenizer.read_bytes())
        self.assertFalse((self.output / "tokenizer.model").exists())

    def test_a_tokenizer_that_is_missing(self):
        self.fails(
            1,
            [self.directory / "none.model"],
            self.tree,
            "--tokenizer",
            self.directory / "none.model",
        )

    def test_shards_of_others_are_left_alone(self):
        self.output.mkdir()
        (self.output / "train_000000.bin").write_bytes(b"mine")
        self.fails(1, [self.output / "train_000000.bin"], self.tree)
        self.assertEqual((self.output / "train_000000.bin").read_bytes(), b"mine")

    def test_a_disk_too_small_is_told_before_the_work(self):
        server = self.serve()
        server.claimed[train_name(1)] = 1 << 60
        self.fails(3, [self.output, "TB needed", "free"], server.url)
        self.assertEqual(server.requests, [], "nothing was downloaded first")

    def test_arguments(self):
        for more in (
            ["--shards", "0"],
            ["--shards", "1025"],
            ["--shards", "x"],
            ["--jobs", "0"],
            ["--other"],
        ):
            self.assertEqual(self.prepare(self.tree, self.output, *more).returncode, 2, more)
        self.assertFalse(self.output.exists())

    def test_dry_run_leaves_nothing(self):
        result = self.must(self.tree, self.output, "--dry-run")
        self.assertIn("files: 4, 0 of them finished", result.stderr)
        self.assertFalse(pathlib.Path(self.output).exists())


class Stop(Tree):
    def slow_program(self, slow_file):
        """The program, which stands still when it is to tokenize that file."""
        path = self.directory / "slow"
        path.write_text(f"""#!/bin/sh
cd '{self.directory}'
case "$*" in *{slow_file}*) echo $$ > slow_pid.tmp; mv slow_pid.tmp slow_pid; exec sleep 600 ;; esac
exec '{PROGRAM[0]}' "$@"
""")
        path.chmod(0o755)
        return path

    def stop_while_tokenizing(self, stop):
        process = self.start(self.tree, "--jobs", 1, "--program", self.slow_program(train_name(1)))
        pid_file = self.directory / "slow_pid"
        wait_for(pid_file.exists, "the second file")
        child = int(pid_file.read_text())
        second = self.prepare(self.tree, self.output)
        self.assertEqual(second.returncode, 1)
        self.assertIn("another run", second.stderr)
        process.send_signal(stop)
        status = process.wait(60)
        wait_for(lambda: not self.lives(child), "the end of the process that was at work")
        self.assertFalse((self.output / "manifest.json").exists())
        result = self.must(self.tree, self.output)
        self.assertEqual(self.made_files(result), [train_name(1), train_name(2), VALIDATION_NAME])
        self.assert_as_wanted()
        return status

    @staticmethod
    def lives(pid):
        try:
            return (
                pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
                not in "ZX"
            )
        except OSError:
            return False

    def test_killed_while_tokenizing(self):
        self.stop_while_tokenizing(signal.SIGKILL)

    def test_stopped_by_a_signal(self):
        self.assertEqual(self.stop_while_tokenizing(signal.SIGTERM), 143)

    def test_killed_again_and_again(self):
        server = self.serve()
        made = time.monotonic()
        self.must(server.url, self.directory / "measure")
        whole = time.monotonic() - made
        for number in range(12):
            process = self.start(server.url)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(whole * (number + 1) / 12)
            self.kill(process)
            for file in self.output.glob("*.bin"):  # a shard that is at its place is whole
                self.assertEqual(file.read_bytes(), (self.wanted / file.name).read_bytes())
            if (self.output / "manifest.json").exists():
                self.assert_as_wanted()
        self.must(server.url, self.output)
        self.assert_as_wanted()


if __name__ == "__main__":
    main()
