#!/usr/bin/env python3
"""Trains every row of the paper's main table at one size, over several seeds, and writes the table.

    scripts/reproduce/main_table.py --scale pico --tokens data/tokens --work runs/main_table --output docs/results

Cells run side by side, each on its own threads. What is finished is not run again and what was interrupted goes on from
its last checkpoint: stop it at any time and start it with the same arguments. A cell counts as finished, too, if the CSV
of an earlier table in --output has it with the same fingerprint (config, rates, length, seed, tokens), so that a table can
be made in parts and on several machines. A cell that fails is shown with its error, the others go on, and the exit status
is 1.
"""

import argparse
import concurrent.futures
import csv
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from run_metrics import BadRun, Run, unigram_entropy  # noqa: E402


@dataclass(frozen=True)
class Row:
    regime: str  # weights / compute
    optimizer: str
    config: str  # without the size
    paper: str = ""  # perplexity printed for 60M, 1x
    overrides: dict = field(default_factory=dict, hash=False)

    @property
    def key(self):
        return "_".join([self.config, *(value for value in self.overrides.values())])


FP16 = {"precision.fp8_scale_mode": "fp16"}
LIVE = {"precision.nvfp4_scale_mode": "live"}
ROWS = [
    Row("FP32/FP32", "AdamW", "fp32_adamw", "29.047 (TF32)"),
    Row("BF16/BF16", "AdamW", "bf16_adamw", "29.865"),
    Row("BF16/BF16", "AdamW + Kahan", "bf16_adamw_kahan", "29.275"),
    Row("BF16/BF16", "AdamW + SR", "bf16_adamw_sr", "29.277"),
    Row("BF16/BF16", "M+Adam", "bf16", "29.035"),
    Row("BF16/BF16", "M+Adam + Kahan", "bf16_kahan"),
    Row("BF16/BF16", "M+Adam + SR", "bf16_sr"),
    Row("BF16/FP8", "AdamW", "bf16_fp8_adamw", "30.151"),
    Row("BF16/FP8", "M+Adam", "bf16_fp8", "29.201"),
    Row("FP8/FP8, pow2 scales", "AdamW", "fp8_adamw", "31.560"),
    Row("FP8/FP8, pow2 scales", "M+Adam", "fp8", "30.484"),
    Row("FP8/FP8, fp16 scales", "AdamW", "fp8_adamw", "31.560", FP16),
    Row("FP8/FP8, fp16 scales", "M+Adam", "fp8", "30.484", FP16),
    Row("NVFP4/FP8, sticky scales", "AdamW", "nvfp4_adamw", "33.884"),
    Row("NVFP4/FP8, sticky scales", "M+Adam", "nvfp4", "30.948"),
    Row("NVFP4/FP8, live scales", "AdamW", "nvfp4_adamw", "33.884", LIVE),
    Row("NVFP4/FP8, live scales", "M+Adam", "nvfp4", "30.948", LIVE),
]


def config_text(path):
    """A config with everything it includes, without comments."""
    text = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    included = re.search(r'"include"\s*:\s*\[(.*?)\]', text, flags=re.DOTALL)
    names = re.findall(r'"([^"]+)"', included.group(1)) if included else []
    return "".join(config_text(path.parent / name) for name in names) + text


def tokens_hash(tokens):
    """What identifies the text and its tokenizer: the hashes of all shards."""
    manifest = json.loads((pathlib.Path(tokens) / "manifest.json").read_text(encoding="utf-8"))
    shards = [shard["hash"] for name in sorted(manifest["splits"]) for shard in manifest["splits"][name]["shards"]]
    return manifest["tokenizer"]["hash"] + " " + " ".join(shards)


def earlier_results(path):
    """{fingerprint: record} of a table made before."""
    if not path.exists():
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        return {record["fingerprint"]: record for record in csv.DictReader(file) if record["val_loss"]}


class Cell:
    """One row at one seed."""

    def __init__(self, row, seed, args, rates):
        self.row, self.seed, self.args = row, seed, args
        self.earlier = None  # its record in an earlier table
        self.overrides = {**row.overrides, **rates.get(row.key, {})}
        self.directory = pathlib.Path(args.work) / f"{args.scale}_{row.key}_seed{seed}"
        self.error = ""

    def command(self):
        tokens = pathlib.Path(self.args.tokens)
        sets = {
            "name": self.directory.name, "output_dir": str(self.directory.parent), "seed": self.seed,
            "data.train": str(tokens / "train_*.bin"), "data.validation": str(tokens / "val_*.bin"),
            "data.tokenizer": str(tokens / "tokenizer.model"), "device.threads": self.args.threads,
            "train.steps": "null", "train.chinchilla": self.args.chinchilla, "eval.every_steps": 0,
            "checkpoint.keep_last": 1, **self.overrides,
        }
        command = [self.args.program, "--config", str(ROOT / "configs" / f"{self.args.scale}_{self.row.config}.json"),
                   "--resume", "auto"]
        return command + [text for key, value in sets.items() for text in ("--set", f"{key}={value}")]

    def fingerprint(self, tokens):
        """Of everything that the loss depends on but the program."""
        text = config_text(ROOT / "configs" / f"{self.args.scale}_{self.row.config}.json")
        parts = [text, json.dumps(self.overrides, sort_keys=True), str(self.seed), f"{self.args.chinchilla:g}", tokens]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def loss(self):
        """Final validation loss, NaN if training diverged, None if the cell is not finished."""
        if self.earlier:
            return float(self.earlier["val_loss"])
        try:
            run = Run(self.directory)
        except BadRun:
            return None
        last = run.steps[max(run.steps)]
        if last.get("skipped"):
            return math.nan
        return last.get("val_loss")

    def run(self):
        if self.loss() is not None:
            return self
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.args.threads), "OMP_WAIT_POLICY": "passive"}
        with open(f"{self.directory}.log", "w", encoding="utf-8") as log:
            status = subprocess.run(self.command(), stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
        if status.returncode != 0 and self.loss() is None:
            lines = pathlib.Path(log.name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            self.error = lines[-1] if lines else f"exit status {status.returncode}"
        return self


    def speed(self):
        """Median tokens/s; a cell that ran beside others is slower for it."""
        if self.earlier:
            return float(self.earlier["tokens_per_second"])
        return Run(self.directory).median("tokens_per_second") if self.loss() is not None else math.nan

    def tokens(self):
        """Trained on in all."""
        if self.earlier:
            return int(self.earlier["tokens"])
        return max(Run(self.directory).steps.items())[1]["tokens"] if self.loss() is not None else 0


def run_all(cells, jobs):
    start, done = time.monotonic(), 0
    todo = [cell for cell in cells if cell.loss() is None]
    print(f"{len(cells) - len(todo)} of {len(cells)} cells are finished, {len(todo)} to run, {jobs} at a time",
          flush=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(cell.run) for cell in todo]):
            cell = future.result()
            done += 1
            left = (time.monotonic() - start) / done * (len(todo) - done)
            result = f"FAILED: {cell.error}" if cell.error else f"loss {cell.loss():.4f}"
            print(f"{done}/{len(todo)} {cell.directory.name}: {result} | {left / 60:.0f} min left", flush=True)


def spread(values):
    return f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""


def table(rows, cells):
    """Markdown lines."""
    lines = ["| weights/compute | optimizer | val loss, mean ± sd | seeds | perplexity | against AdamW | paper, 60M |",
             "|---|---|---|---|---|---|---|"]
    baseline = {}
    for row in rows:
        losses = [loss for cell in cells if cell.row is row and (loss := cell.loss()) is not None]
        if not losses:
            lines.append(f"| {row.regime} | {row.optimizer} | not run | 0 | | | {row.paper} |")
            continue
        mean = statistics.fmean(losses)
        baseline.setdefault(row.regime, mean)
        against = f"{mean - baseline[row.regime]:+.4f}" if row.optimizer != "AdamW" else ""
        lines.append(f"| {row.regime} | {row.optimizer} | {mean:.4f}{spread(losses)} | {len(losses)} | {math.exp(mean):.3f} "
                     f"| {against} | {row.paper} |")
    return lines


def processor():
    """The model and number of this machine's processors."""
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    return f"{platform.machine()}, {os.cpu_count()} threads"


def write_results(args, rows, cells, rates):
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    lines = table(rows, cells)
    tokens = max((cell.tokens() for cell in cells), default=0)
    manifest = json.loads((pathlib.Path(args.tokens) / "manifest.json").read_text(encoding="utf-8"))
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False).stdout.strip()
    seeds = " ".join(map(str, args.seeds))
    text = [f"# Main table, {args.scale}", "",
            f"    scripts/reproduce/main_table.py --scale {args.scale} --chinchilla {args.chinchilla:g} --seeds {seeds} \\",
            "      --tokens TOKENS --work RUNS --output docs/results" + (f" --rates {args.rates}" if rates else ""), "",
            f"{tokens:,} tokens a run, seeds {seeds}, {manifest['splits']['train']['tokens']:,} training tokens, unigram "
            f"entropy of the validation text {unigram_entropy(pathlib.Path(args.tokens) / 'manifest.json'):.4f} nats. "
            f"Commit {commit}; {processor()}; {args.jobs} cells at a time of {args.threads} thread(s) each.", "",
            *lines, ""]
    if rates:
        text += ["Rates that differ from the configs: " +
                 "; ".join(f"`{key}`: " + ", ".join(f"{k}={v}" for k, v in value.items()) for key, value in rates.items()),
                 ""]
    stem = output / f"main_table_{args.scale}"
    notes = stem.with_suffix(".notes.md")
    if notes.exists():
        text += [notes.read_text(encoding="utf-8").strip(), ""]
    stem.with_suffix(".md").write_text("\n".join(text), encoding="utf-8")
    identity = tokens_hash(args.tokens)
    with open(stem.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["regime", "optimizer", "row", "seed", "val_loss", "tokens", "tokens_per_second", "fingerprint"])
        for cell in cells:
            if (loss := cell.loss()) is not None:
                writer.writerow([cell.row.regime, cell.row.optimizer, cell.row.key, cell.seed, f"{loss:.6f}",
                                 cell.tokens(), f"{cell.speed():.0f}", cell.fingerprint(identity)])
    print("\n".join(lines))
    print(f"written: {stem.with_suffix('.md')}, {stem.with_suffix('.csv')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="pico", help="size, as configs/<scale>_*.json spells it")
    parser.add_argument("--chinchilla", type=float, default=1.0, help="length in multiples of 20 tokens a parameter")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tokens", required=True, help="directory that `mpretrain tokenize` wrote")
    parser.add_argument("--work", required=True, help="where the runs go")
    parser.add_argument("--output", default=str(ROOT / "docs/results"))
    parser.add_argument("--program", default=str(ROOT / "build/cpu/mpretrain"))
    parser.add_argument("--rates", help="JSON: row -> keys and values over those of its config")
    parser.add_argument("--rows", nargs="+", help="only these rows (names of configs without the size, variant appended)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--threads", type=int, default=1, help="of each cell")
    parser.add_argument("--table-only", action="store_true", help="write the table of what is finished, run nothing")
    args = parser.parse_args()
    rates = json.loads(pathlib.Path(args.rates).read_text(encoding="utf-8")) if args.rates else {}
    rows = [row for row in ROWS if not args.rows or row.key in args.rows]
    known = {row.key for row in ROWS}
    for name in [*(args.rows or []), *rates]:
        if name not in known:
            parser.error(f"no row {name}; rows are {', '.join(sorted(known))}")
    cells = [Cell(row, seed, args, rates) for seed in args.seeds for row in rows]
    earlier = earlier_results(pathlib.Path(args.output) / f"main_table_{args.scale}.csv")
    identity = tokens_hash(args.tokens)
    for cell in cells:
        cell.earlier = earlier.get(cell.fingerprint(identity))
    if not args.table_only:
        run_all(cells, args.jobs)
    write_results(args, rows, cells, rates)
    return 1 if any(cell.error for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
