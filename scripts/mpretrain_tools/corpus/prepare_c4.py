"""Turns the published shards of C4/EN into token shards with one manifest; started by
prepare_c4.sh.

Every file of C4 becomes one token shard of the same number, made by `mpretrain tokenize`. What is
under way lies in OUTPUT/.prepare_c4; a finished shard has a record there, written last, and is not
made again. Shards, and the manifest behind them, come to their place when all that were asked for
are there.
"""

import argparse
import array
import concurrent.futures
import fcntl
import gzip
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import zlib
from collections import Counter
from dataclasses import dataclass

from .. import with_parent
from ..files import sync_directory, write_whole
from .c4_source import DISK_FULL, DirectorySource, HttpSource, SourceError, Stopped, is_disk_full

TRAIN_FILES = 1024
VALIDATION_FILES = 8
STATE = ".prepare_c4"
MOST_TOKENS = 2**31 - 1  # in a token shard, so that a file of C4 becomes one
TOKENS_PER_BYTE = (
    0.62  # of gzip, for 32,000 pieces; once a shard is finished, its own figure counts
)
SPARE = 1.1  # disk asked for, over the estimate
COUNTING = 0.2  # of the work of tokenizing, for the time left
LOG_INTERVAL_S = 10
EPILOG = """exit status: 0 done, 1 failed, 2 wrong arguments, 3 the disk is too small or full,
4 the source cannot be reached (run the same command later to continue), 130 or 143 stopped by a
signal"""


@dataclass(frozen=True)
class Item:
    split: str  # as in the manifest: train, val
    number: int

    @property
    def name(self):
        if self.split == "train":
            return f"c4-train.{self.number:05}-of-{TRAIN_FILES:05}.json.gz"
        return f"c4-validation.{self.number:05}-of-{VALIDATION_FILES:05}.json.gz"

    @property
    def stem(self):
        return f"{self.split}_{self.number:06}"


# --- processes that end with this one ----------------------------------------------------------


def helper(*command):
    """A command that ends when this process does."""
    return [sys.executable, "-I", "-S", with_parent.__file__, str(os.getpid()), *command]


class Children:
    """The processes at work, so that all can be ended."""

    def __init__(self, stop):
        self.stop = stop
        self.running = set()
        self.lock = threading.Lock()

    def run(self, command, on_line=lambda line: None):
        """Exit status, standard output, and the lines of standard error; each goes to on_line
        first.
        """
        process = self._start(command)
        lines, out = [], []
        reader = threading.Thread(target=lambda: out.append(process.stdout.read()))
        reader.start()
        for line in process.stderr:
            if not on_line(line):
                lines = [*lines[-20:], line.rstrip()]
        reader.join()
        process.wait()
        with self.lock:
            self.running.discard(process)
        if self.stop.is_set():
            raise Stopped()
        return process.returncode, out[0], lines

    def _start(self, command):
        with self.lock:
            if self.stop.is_set():
                raise Stopped()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            self.running.add(process)
        return process

    def kill(self):
        with self.lock:
            for process in self.running:
                process.kill()


# --- reading what was made ---------------------------------------------------------------------


def token_counts(path, vocab_size):
    """How often each token stands in a shard; memory does not grow with it."""
    counts = Counter()
    with open(path, "rb") as file:
        header = array.array("i", file.read(1024))
        width = {20240520: "H", 20240801: "I"}[header[0]]
        while block := file.read(1 << 20):
            counts.update(array.array(width, block))
    return [counts[token] for token in range(vocab_size)]


def entropy_nats(counts):
    total = sum(counts)
    return -sum(n / total * math.log(n / total) for n in counts if n)


def sha256_of(path, stop):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            if stop.is_set():
                raise Stopped()
            digest.update(block)
    return digest.hexdigest()


def gzip_damage(path, stop):
    """What is wrong with a compressed file; None if nothing is."""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                if stop.is_set():
                    raise Stopped()
    except (OSError, EOFError, zlib.error) as failure:
        return str(failure)
    return None


# --- progress ----------------------------------------------------------------------------------


def size_text(count):
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def time_text(seconds):
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    return f"{seconds // 3600}h{seconds // 60 % 60:02}m"


class Display:
    """Lines of the log and, under them on a terminal, one that is drawn over."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.start = self.shown = time.monotonic()
        self.lock = threading.Lock()

    def line(self, text):
        with self.lock:
            print(
                ("\r\033[K" if self.terminal else "") + f"c4: {text}", file=sys.stderr, flush=True
            )

    def progress(self, share, note):
        now = time.monotonic()
        if not self.terminal and now - self.shown < LOG_INTERVAL_S:
            return
        self.shown = now
        left = time_text((now - self.start) * (1 - share) / share) if share > 0 else "?"
        text = f"c4: {100 * share:5.1f}% | {left} left | {note}"
        with self.lock:
            width = shutil.get_terminal_size().columns - 1
            print(
                f"\r\033[K{text[:width]}" if self.terminal else text,
                end="" if self.terminal else "\n",
                file=sys.stderr,
                flush=True,
            )

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


# --- the work ----------------------------------------------------------------------------------


class Preparation:
    def __init__(self, options):
        self.options = options
        self.output = pathlib.Path(options.output)
        self.state = self.output / STATE
        self.records, self.staged, self.work = (
            self.state / name for name in ("records", "shards", "work")
        )
        self.stop = threading.Event()
        self.children = Children(self.stop)
        self.display = Display()
        self.fractions = {}  # of pending items: downloaded, tokenized, counted
        self.sizes = {}

    # What there is

    def open_output(self):
        if not self.state.is_dir() and self.output.is_dir():
            for path in sorted(self.output.iterdir()):
                if path.name == "manifest.json" or re.fullmatch(
                    r"(train|val)_\d+\.(bin|idx)", path.name
                ):
                    raise SourceError(
                        f"{path}: already exists without the {STATE} that records how it was made;"
                        " choose another --output"
                    )
        for directory in (self.records, self.staged, self.work):
            directory.mkdir(parents=True, exist_ok=True)
        # Open as long as this process lives.
        self.lock_file = open(self.state / "lock", "w", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SourceError(f"{self.output}: another run is using it") from None
        self.clear_work()

    def clear_work(self):
        """Of a run that was killed, too, whose processes may still be ending."""
        for attempt in range(10):
            try:
                shutil.rmtree(self.work)
                break
            except OSError:
                if attempt == 9:
                    raise
                time.sleep(0.1)
        self.work.mkdir()

    def open_source(self):
        if re.match(r"https?://", self.options.source):
            downloads = (
                self.output / "downloads"
                if self.options.keep_downloads
                else self.state / "downloads"
            )
            return HttpSource(
                self.options.source, downloads, self.options.keep_downloads, self.stop
            )
        return DirectorySource(self.options.source)

    def tokenize_command(self, path, output, threads):
        options = self.options
        command = helper(
            options.program,
            "tokenize",
            "--input",
            str(path),
            "--tokenizer",
            options.tokenizer,
            "--output",
            str(output),
            "--shard-tokens",
            str(MOST_TOKENS),
            "--threads",
            str(threads),
            "--on-bad-document",
            options.on_bad_document,
        )
        return command + (["--bos"] if options.bos else [])

    def settings(self):
        """What shards of one directory have in common, as the program tells it of a text of two
        words.
        """
        text = self.work / "words.txt"
        text.write_text("two words\n", encoding="utf-8")
        code, _, lines = self.children.run(self.tokenize_command(text, self.work / "words", 1))
        if code != 0:
            raise SourceError(
                last_line(lines, f"{self.options.program}: cannot be run (status {code})")
            )
        manifest = json.loads((self.work / "words/manifest.json").read_text(encoding="utf-8"))
        name = manifest["tokenizer"]["file"]
        (self.work / "words" / name).replace(self.state / name)
        del manifest["options"]["patterns"]
        return {
            "format_version": manifest["format_version"],
            "tokenizer": manifest["tokenizer"],
            "options": manifest["options"],
        }

    def check_settings(self):
        self.common = self.settings()
        path = self.state / "settings.json"
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            for part in self.common:
                if before[part] != self.common[part]:
                    was, now = json.dumps(before[part]), json.dumps(self.common[part])
                    raise SourceError(
                        f"{self.output}: its shards were made with {part} {was}, but this run asks"
                        f" for {now}; choose another --output"
                    )
        else:
            write_whole(path, json.dumps(self.common, indent=2) + "\n")

    def record_of(self, item):
        try:
            return json.loads((self.records / f"{item.stem}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def place_of(self, file):
        """Where a finished file lies: staged or at its place."""
        staged = self.staged / file
        return staged if staged.exists() else self.output / file

    def is_finished(self, item):
        record = self.record_of(item)
        if record is None:
            return False
        for file, size in record["files"].items():
            path = self.place_of(file)
            if not path.exists() or path.stat().st_size != size:
                self.display.line(f"{path}: is not as it was made; it is made again")
                return False
        return True

    def finished_items(self):
        found = re.compile(r"(train|val)_(\d{6})\.json")
        matches = [found.fullmatch(path.name) for path in sorted(self.records.iterdir())]
        return [Item(match[1], int(match[2])) for match in matches if match]

    # What it takes

    def look_at_sources(self, items):
        """Sizes of all files, so that a missing one is told before the work, not in its middle."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for item, size in zip(items, pool.map(lambda item: self.source.size(item.name), items)):
                self.sizes[item] = size

    def tokens_per_byte(self):
        records = [self.record_of(item) for item in self.finished_items()]
        read = sum(record["source"]["bytes"] for record in records)
        if read == 0:
            return TOKENS_PER_BYTE, "as C4 in English gives with 32,000 pieces"
        return (
            sum(record["tokens"] for record in records) / read,
            f"as measured on {len(records)} finished",
        )

    def check_disk(self, wanted, pending):
        compressed = sum(self.sizes.values())
        per_byte, why = self.tokens_per_byte()
        width = 2 if self.common["tokenizer"]["vocab_size"] <= 65536 else 4
        shards = compressed * per_byte * width * SPARE
        downloads = self.download_bytes(pending)
        free = shutil.disk_usage(self.output).free
        say = self.display.line
        say(
            f"files: {len(wanted)}, {len(wanted) - len(pending)} of them finished; to read:"
            f" {len(pending)}, {size_text(compressed)} compressed"
        )
        say(
            f"about {compressed * per_byte / 1e6:.4g} M tokens, {per_byte:.3g} a compressed byte"
            f" {why}"
        )
        kept = (
            "kept"
            if self.options.keep_downloads
            else f"of at most {self.options.jobs} files at a time"
        )
        say(
            f"disk: {size_text(shards)} for shards, {size_text(downloads)} for downloads"
            + (f" ({kept})" if downloads else "")
            + f"; {size_text(free)} free in {self.output}"
        )
        if shards + downloads > free:
            raise SourceError(
                f"{self.output}: {size_text(shards + downloads)} needed, {size_text(free)} free; "
                "make room, or ask for fewer --shards",
                DISK_FULL,
            )

    def download_bytes(self, pending):
        if not self.source.transient:
            return 0
        left = sorted(
            (self.sizes[item] - self.source.partial_bytes(item.name) for item in pending),
            reverse=True,
        )
        return sum(left if self.options.keep_downloads else left[: self.options.jobs])

    # One file

    def make(self, item):
        self.fractions[item] = [0.0, 0.0, 0.0]
        for attempt in (1, 2):
            path = self.source.obtain(item.name, lambda share: self.note(item, 0, share))
            digest = sha256_of(path, self.stop)
            if self.tokenize(item, path, may_renew=attempt == 1):
                break
        directory = self.work / item.stem
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        record = self.record(item, path, digest, manifest)
        for old, new in (
            ("train_000000.bin", f"{item.stem}.bin"),
            ("train_000000.idx", f"{item.stem}.idx"),
        ):
            os.replace(directory / old, self.staged / new)
        sync_directory(self.staged)
        write_whole(self.records / f"{item.stem}.json", json.dumps(record))
        shutil.rmtree(directory)
        self.source.release(item.name)
        self.note(item, 2, 1.0)
        return record

    def tokenize(self, item, path, may_renew):
        """Whether it is done; False asks for another copy of the file."""
        directory = self.work / item.stem
        shutil.rmtree(directory, ignore_errors=True)
        warnings = []

        def on_line(line):
            match = re.match(r"tokenize +([0-9.]+)%", line)
            if match:
                self.note(item, 1, float(match[1]) / 100)
            elif "[warning]" in line:
                warnings.append(line.strip())
            return bool(match)

        threads = max(1, self.options.threads // self.jobs)
        code, _, lines = self.children.run(self.tokenize_command(path, directory, threads), on_line)
        for line in warnings:
            self.display.line(f"{item.name}: {line}")
        if code == 0:
            self.note(item, 1, 1.0)
            return True
        damage = gzip_damage(path, self.stop)
        if damage is None:
            full = shutil.disk_usage(self.output).free < 1 << 20
            reason = last_line(lines, f"{self.options.program} ended with status {code}")
            raise SourceError(f"{reason} (reading {item.name})", DISK_FULL if full else 1)
        renewed = self.source.renew(item.name)
        if not (renewed and may_renew):
            again = "; so was a second download" if renewed else ""
            raise SourceError(
                f"{path if not renewed else item.name}: damaged gzip data: {damage}{again}"
            )
        self.display.line(
            f"{item.name}: damaged gzip data: {damage}; it is thrown away and downloaded again"
        )
        return False

    def record(self, item, path, digest, manifest):
        split = manifest["splits"]["train"]
        if len(split["shards"]) != 1:
            raise SourceError(
                f"{item.name}: {split['tokens']} tokens exceed the limit of one shard,"
                f" {MOST_TOKENS}"
            )
        directory = self.work / item.stem
        shard = directory / "train_000000.bin"
        vocab_size = manifest["tokenizer"]["vocab_size"]
        count = [sys.executable, "-B", "-m", __spec__.name, "--count", str(shard), str(vocab_size)]
        code, out, lines = self.children.run(helper(*count))
        if code != 0:
            raise SourceError(last_line(lines, f"{shard}: its tokens cannot be counted"))
        files = {
            f"{item.stem}.{end}": (directory / f"train_000000.{end}").stat().st_size
            for end in ("bin", "idx")
        }
        return {
            "source": {"file": item.name, "bytes": path.stat().st_size, "sha256": digest},
            "files": files,
            "hash": split["shards"][0]["hash"],
            "documents": split["documents"],
            "tokens": split["tokens"],
            "text_bytes": split["text_bytes"],
            "token_counts": json.loads(out),
        }

    # All of them

    def note(self, item, part, share):
        self.fractions[item][part] = share

    def share_done(self):
        weights = (1.0 if self.source.transient else 0.0, 1.0, COUNTING)
        begun = list(self.fractions.items())
        done = sum(
            self.sizes[item] * w * share
            for item, shares in begun
            for w, share in zip(weights, shares)
        )
        return done / max(1, sum(self.sizes.values()) * sum(weights))

    def make_all(self, pending):
        self.jobs = min(self.options.jobs, len(pending))
        pool = concurrent.futures.ThreadPoolExecutor(self.jobs)
        self.display.start = time.monotonic()
        waiting = {pool.submit(self.make_unless_stopped, item): item for item in pending}
        made = tokens = documents = 0
        while waiting:
            done, _ = concurrent.futures.wait(waiting, 0.5, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                item, record = waiting.pop(future), future.result()
                made, tokens, documents = (
                    made + 1,
                    tokens + record["tokens"],
                    documents + record["documents"],
                )
                self.display.line(
                    f"{item.name}: {record['documents']} documents, {record['tokens']} tokens "
                    f"({made} of {len(pending)} done)"
                )
            seconds = time.monotonic() - self.display.start
            self.display.progress(self.share_done(), f"{made} of {len(pending)} done")
        self.display.line(
            f"{documents} documents, {tokens} tokens in {time_text(seconds)}:"
            f" {documents / seconds:.4g} documents/s, {tokens / seconds:.4g} tokens/s"
        )

    def make_unless_stopped(self, item):
        if self.stop.is_set():
            raise Stopped()
        return self.make(item)

    def merged_manifest(self):
        splits, sources = {}, []
        for name in ("train", "val"):
            counts = [0] * self.common["tokenizer"]["vocab_size"]
            split = {"documents": 0, "tokens": 0, "text_bytes": 0, "shards": []}
            for item in self.finished_items():
                if item.split != name:
                    continue
                record = self.record_of(item)
                for key in ("documents", "tokens", "text_bytes"):
                    split[key] += record[key]
                counts = [a + b for a, b in zip(counts, record["token_counts"])]
                split["shards"].append(
                    {"file": f"{item.stem}.bin", "tokens": record["tokens"], "hash": record["hash"]}
                )
                sources.append({"shard": f"{item.stem}.bin", **record["source"]})
            if split["shards"]:
                splits[name] = {**split, "unigram_entropy_nats": entropy_nats(counts)}
        return {
            "format": "mpretrain token shards",
            "format_version": self.common["format_version"],
            "tokenizer": self.common["tokenizer"],
            "splits": splits,
            "options": {**self.common["options"], "sources": sources},
        }

    def publish(self):
        """The manifest goes first and comes last: where it is, what it lists is there."""
        text = json.dumps(self.merged_manifest(), indent=2, sort_keys=True) + "\n"
        path = self.output / "manifest.json"
        if (
            not path.exists()
            or path.read_text(encoding="utf-8") != text
            or any(self.staged.iterdir())
        ):
            path.unlink(missing_ok=True)
            sync_directory(self.output)
            for file in sorted(self.staged.iterdir()):
                os.replace(file, self.output / file.name)
            tokenizer = json.loads(text)["tokenizer"]["file"]
            shutil.copyfile(self.state / tokenizer, self.state / "tokenizer.tmp")
            os.replace(self.state / "tokenizer.tmp", self.output / tokenizer)
            sync_directory(self.output)
            write_whole(path, text)
        for name, split in json.loads(text)["splits"].items():
            shards = len(split["shards"])
            self.display.line(
                f"{name}: {split['documents']} documents, {split['tokens']} tokens in {shards}"
                f" shard{'' if shards == 1 else 's'}, unigram entropy"
                f" {split['unigram_entropy_nats']:.4f} nats"
            )
        self.clear_work()
        self.display.line(f"done: {path}")

    def run(self):
        made = [path for path in (self.state, self.output) if not path.exists()]
        try:
            self.prepare()
        finally:
            if self.options.dry_run:
                for path in made:
                    shutil.rmtree(path, ignore_errors=True)

    def prepare(self):
        options = self.options
        self.open_output()
        self.check_settings()
        wanted = [Item("train", n) for n in range(options.shards)]
        wanted += [Item("val", n) for n in range(options.validation_shards)]
        wanted += [
            item for item in self.finished_items() if item not in wanted
        ]  # what was asked for earlier stays
        pending = [item for item in wanted if not self.is_finished(item)]
        if not options.dry_run:
            for item in pending:
                (self.records / f"{item.stem}.json").unlink(missing_ok=True)
        if pending:
            self.source = self.open_source()
            self.look_at_sources(pending)
            self.check_disk(wanted, pending)
        if options.dry_run:
            self.display.line("dry run: nothing was written")
            return
        if pending:
            self.make_all(pending)
        self.publish()


def last_line(lines, otherwise):
    text = next((line for line in reversed(lines) if line), otherwise)
    return re.sub(r"^mpretrain: error: ", "", text)


def count_up_to(most, least):
    def parse(text):
        if text == "all":
            return most
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}': expected {least} to {most}, or all")
        return int(text)

    return parse


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected 1 or more")
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(
        prog="prepare_c4.sh",
        epilog=EPILOG,
        allow_abbrev=False,
        description=__doc__.split(";", maxsplit=1)[0] + ".",
    )
    add = parser.add_argument
    add(
        "--source",
        required=True,
        metavar="DIRECTORY|URL",
        help="that contains c4-train.00000-of-01024.json.gz, directly or in en/",
    )
    add("--tokenizer", required=True, metavar="FILE", help="SentencePiece model")
    add("--output", required=True, metavar="DIRECTORY", help="for shards and manifest.json")
    add(
        "--shards",
        type=count_up_to(TRAIN_FILES, 1),
        default=4,
        metavar="N|all",
        help="number of training files, from the first; default 4; a later run can add more",
    )
    add(
        "--validation-shards",
        type=count_up_to(VALIDATION_FILES, 0),
        default=1,
        metavar="N|all",
        help="number of validation files; default 1",
    )
    add("--jobs", type=positive, default=2, metavar="N", help="files to process at once; default 2")
    add(
        "--threads",
        type=positive,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="threads of all jobs together; default: all cores",
    )
    add("--keep-downloads", action="store_true", help="keep downloaded files in OUTPUT/downloads")
    add("--bos", action="store_true", help="prepend BOS to each document")
    add(
        "--on-bad-document",
        choices=("error", "skip"),
        default="error",
        help="what to do on invalid UTF-8 or a line without text; default error",
    )
    add("--dry-run", action="store_true", help="print what would be read and written, then stop")
    add(
        "--program",
        required=True,
        metavar="FILE",
        help="mpretrain executable; default: the one built here, else the installed one",
    )
    return parser.parse_args()


def on_signal(number, frame):
    raise KeyboardInterrupt(number)


def prepare():
    preparation = Preparation(arguments())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    status = 0
    try:
        preparation.run()
    except KeyboardInterrupt as stopped:
        number = stopped.args[0] if stopped.args else signal.SIGINT
        text, status = "stopped; run the same command to continue", 128 + number
    except SourceError as failure:
        text, status = f"error: {failure}", failure.status
    except OSError as failure:
        text, status = (
            f"error: {failure.filename}: {failure.strerror}",
            (DISK_FULL if is_disk_full(failure) else 1),
        )
    except Exception as failure:  # a bug; threads must not outlive it
        traceback.print_exc()
        text, status = f"error: {type(failure).__name__}", 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    preparation.stop.set()
    preparation.children.kill()
    preparation.display.end()
    if status:
        print(f"prepare_c4.sh: {text}", file=sys.stderr, flush=True)
    os._exit(status)  # a thread may sit in a connection that sends nothing


def main():
    if sys.argv[1:2] == ["--count"]:
        print(json.dumps(token_counts(sys.argv[2], int(sys.argv[3]))))
    else:
        prepare()


if __name__ == "__main__":
    main()
