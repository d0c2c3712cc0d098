"""Compares the measurements of scripts/gpu_check.sh with their goals: writes report.md and
report.json from <output>/results.tar.gz.

  scripts/bench.py gpu_check_report --output docs/benchmarks/gpu

Missing measurements are named. Ratios are medians over alternating rounds, with their range.
"""

import argparse
import itertools
import json
import re
import tempfile
from pathlib import Path

from ..markdown import table
from .sitting.results import ARCHIVE, ENDED, unpack
from .sitting.units import FORMATS, PARTS, TOOLS

SIZES = ["60m", "130m", "350m", "1b"]
# Percent of the BF16 GEMM rate, and tokens/s of FP8/FP8 over BF16/BF16.
RATE_GOALS = {"60m": 50, "130m": 55, "350m": 65, "1b": 70}
FP8_GOALS = {"350m": 1.25, "1b": 1.45}
NOT_MEASURED = "not measured"


class Raw:
    """The files that the stages left, by name; nothing where a stage did not get so far, or has
    figures of another commit, which stay in the archive until it is measured again.
    """

    def __init__(self, directory):
        self.directory = directory
        self.machine = self.read_machine()
        self.dry = "dry run" in self.machine.get("backend", "")

    def read_machine(self):
        path = self.directory / "machine.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split(": ", 1) for line in lines if ": " in line)

    def json(self, name):
        path = self.directory / f"{name}.json"
        of = self.log(name).get("commit")
        other = of is not None and of != self.machine.get("commit", of)
        return json.loads(path.read_text()) if path.exists() and not other else None

    def log(self, name):
        """command, commit, date and exit status of a run."""
        path = self.directory / f"{name}.log"
        if not path.exists():
            return {}
        found = re.findall(
            r"^(command|commit|date|exit status): ?(.*)$", path.read_text(errors="replace"), re.M
        )
        return {key: value.strip() for key, value in found}

    def names(self):
        return sorted(path.stem for path in self.directory.glob("*.log"))

    def not_measured(self):
        """(unit, why) of those that the last call did not get done."""
        path = self.directory / ENDED
        units = json.loads(path.read_text()) if path.exists() else {}
        return [(name, of["why"]) for name, of in units.items() if of["state"] != "done"]


class Row:
    """A figure, what it should be, and whether it is."""

    def __init__(self, what, goal, value=None, text=None, met=None):
        self.what, self.goal, self.value, self.met = what, goal, value, met
        self.text = text if value is not None else NOT_MEASURED

    def verdict(self, dry):
        if self.value is None or self.met is None:
            return ""
        if dry:
            return "dry run"
        return "met" if self.met else "**missed**"

    def as_json(self, dry):
        return {
            "what": self.what,
            "goal": self.goal,
            "value": self.value,
            "verdict": self.verdict(dry) or None,
        }


def spread(summary, form="{:.3f}"):
    return "{} ({}-{})".format(*(form.format(summary[key]) for key in ("median", "min", "max")))


def rate_rows(raw):
    for size in SIZES:
        steps = raw.json(f"steps_{size}")
        what, goal = (
            f"{size}: BF16/BF16 M+Adam, % of the measured BF16 GEMM rate",
            f">= {RATE_GOALS[size]}",
        )
        if not steps:
            yield Row(what, goal)
            continue
        percent = steps[0]["percent_of_bf16_rate"]
        text = f"{percent:.1f}; {spread(steps[0]['tokens_per_second'], '{:.0f}')} tokens/s"
        yield Row(what, goal, percent, text, percent >= RATE_GOALS[size])


def ratio_of(raw, size, name):
    pair = raw.json(f"pair_{size}_{name}")
    return pair["models"][1]["over_first"] if pair else None


def at_least_rows(raw, name, what, goals):
    for size in SIZES:
        ratio, least = ratio_of(raw, size, name), goals.get(size)
        row = Row(f"{size}: {what}", f">= {least}" if least else "")
        if ratio:
            met = ratio["median"] >= least if least else None
            row = Row(row.what, row.goal, ratio["median"], spread(ratio), met)
        yield row


def cost_rows(raw, name, what, goals):
    """How much longer a step takes than the first one's, in percent."""
    for size in SIZES:
        ratio, most = ratio_of(raw, size, name), goals.get(size)
        row = Row(f"{size}: {what}, % slower", f"<= {most}" if most is not None else "")
        if ratio:
            slower = {
                key: 100 * (1 / ratio[of] - 1)
                for key, of in (("median", "median"), ("min", "max"), ("max", "min"))
            }
            met = slower["median"] <= most if most is not None else None
            row = Row(row.what, row.goal, slower["median"], spread(slower, "{:.2f}"), met)
        yield row


def optimizer_rows(raw):
    cases = [f"{format}_{rule}" for format in FORMATS for rule in ("adamw", "m_plus_adam")]
    for case in [*cases, "bf16_adamw_stochastic", "bf16_adamw_kahan"]:
        update = raw.json(f"optimizer_{case}")
        what = f"update alone, {case.replace('_', ' ')}, % of the measured copy bandwidth"
        if not update:
            yield Row(what, ">= 85")
            continue
        percent = update["percent_of_copy"]
        yield Row(
            what,
            ">= 85",
            percent,
            f"{percent:.1f}; {update['bytes_per_second']['median'] / 1e9:.0f} GB/s",
            percent >= 85,
        )


def peer_rows(raw):
    for size in SIZES:
        ours = [raw.json(f"peer_{size}_ours_{when}") for when in ("before", "after")]
        torch, row = (
            raw.json(f"peer_{size}_torch"),
            Row(f"{size}: BF16 AdamW tokens/s over PyTorch's", ">= 1.2"),
        )
        if torch and all(ours):
            peer = torch["tokens_per_second"]["median"]
            ratios = [one[0]["tokens_per_second"]["median"] / peer for one in ours]
            mean = sum(ratios) / 2
            before, after = ratios
            text = (
                f"{mean:.3f} ({before:.3f} before, {after:.3f} after); PyTorch {peer:.0f} tokens/s,"
                f" torch.compile {torch['torch_compile']}"
            )
            if torch["micro_batch_rows"] != ours[0][0]["micro_batch_rows"]:
                text += (
                    f", micro-batches of {torch['micro_batch_rows']} rows, ours of"
                    f" {ours[0][0]['micro_batch_rows']}"
                )
            row = Row(row.what, row.goal, mean, text, mean >= 1.2)
        yield row


def memory_rows(raw):
    for size in SIZES:
        steps = raw.json(f"steps_{size}")
        for name, index in (("BF16/BF16", 0), ("FP8/FP8", 1)):
            what, goal = f"{size}: {name}, memory taken over planned", "0.98 to 1.02"
            if not steps:
                yield Row(what, goal)
                continue
            memory = steps[index]["memory"]
            ratio = memory["taken_over_planned"]
            text = (
                f"{ratio:.3f}; {memory['taken_bytes'] / 2**30:.2f} of"
                f" {memory['planned_bytes'] / 2**30:.2f} GiB"
            )
            yield Row(what, goal, ratio, text, 0.98 <= ratio <= 1.02)


def goal_rows(raw):
    yield from rate_rows(raw)
    yield from at_least_rows(raw, "fp8", "FP8/FP8 tokens/s over BF16/BF16", FP8_GOALS)
    yield from at_least_rows(
        raw, "nvfp4", "NVFP4/FP8 tokens/s over FP8/FP8", dict.fromkeys(SIZES, 0.97)
    )
    yield from cost_rows(raw, "m_plus_adam", "M+Adam than AdamW", {"60m": 2, "350m": 1, "1b": 1})
    yield from cost_rows(
        raw, "sr", "AdamW with stochastic rounding than AdamW", dict.fromkeys(SIZES, 1)
    )
    yield from cost_rows(
        raw, "kahan", "AdamW with Kahan compensation than AdamW", dict.fromkeys(SIZES, 2)
    )
    yield from optimizer_rows(raw)
    yield from peer_rows(raw)
    yield from memory_rows(raw)


def correctness(raw):
    yield "GPU tests", tests_text(raw)
    yield "attention of the steps", attention_text(raw)
    for tool, part in itertools.product(TOOLS, PARTS):
        yield f"compute-sanitizer {tool}, {part}", status_text(raw, f"sanitizer_{tool}_{part}")


def attention_text(raw):
    """Which attention ran. By GEMMs a step has far more launches, so that is no measure of it."""
    steps = [step for size in SIZES for step in raw.json(f"steps_{size}") or []]
    used = sorted({step.get("attention", "") for step in steps} - {""})
    if not used:
        return NOT_MEASURED
    text = "; ".join(used)
    return text if all(one.startswith("cuDNN") for one in used) else f"**{text}**"


def status_text(raw, name):
    log = raw.log(name)
    if "exit status" not in log:
        return NOT_MEASURED
    return "clean" if log["exit status"] == "0" else f"**exit status {log['exit status']}**"


def tests_text(raw):
    status, cases = raw.log("tests").get("exit status"), raw.json("tests_cases")
    if status is None:
        return NOT_MEASURED
    if cases is None:
        return f"**exit status {status}**"
    results = [test.get("result") for suite in cases["testsuites"] for test in suite["testsuite"]]
    skipped, failed = results.count("SKIPPED"), cases["failures"] + cases.get("errors", 0)
    text = f"{cases['tests'] - failed - skipped} passed, {failed} failed, {skipped} skipped"
    return text if status == "0" else f"**{text}, exit status {status}**"


def machine_lines(raw):
    measured = raw.json("machine")
    lines = [f"* {key}: {value}" for key, value in raw.machine.items()]
    if not measured:
        return [*lines, f"* copy bandwidth and GEMM rates: {NOT_MEASURED}"]
    lines += [f"* device: {measured['device']}", f"* libraries: {measured['libraries']}"]
    lines += [f"* {key.replace('_', ' ')}: {value}" for key, value in measured["driver"].items()]
    lines.append(
        "* copy:"
        f" {spread({k: measured['copy'][k] / 1e9 for k in ('median', 'min', 'max')}, '{:.4g}')}"
        f" GB/s = {measured['copy']['formula']}"
    )
    for name, rate in measured["gemms"].items():
        lines.append(
            f"* {name} GEMMs:"
            f" {spread({k: rate[k] / 1e12 for k in ('median', 'min', 'max')}, '{:.4g}')} TFLOP/s ="
            f" {rate['formula']}"
        )
    return lines


def step_rows(raw):
    for size in SIZES:
        for step in raw.json(f"steps_{size}") or []:
            outcome = step["outcome"]
            parts = ", ".join(f"{name} {ms:.2f}" for name, ms in step["parts_milliseconds"].items())
            yield [
                size,
                f"{step['weights']}/{step['compute']} {step['rule']}",
                str(step["micro_batch_rows"]),
                spread(step["tokens_per_second"], "{:.0f}"),
                f"{step['milliseconds_per_step']:.2f}",
                f"{step['percent_of_bf16_rate']:.1f}",
                "yes" if outcome["replayed"] else "no",
                f"{outcome['first_loss']:.3f} to {outcome['last_loss']:.3f}"
                + (
                    ""
                    if outcome["loss_finite"] and not outcome["steps_without_update"]
                    else ", **not finite**"
                ),
                parts,
            ]


def markdown(raw, rows):
    lines = ["# The CUDA backend, measured", ""]
    if raw.dry:
        lines += [
            (
                "**A dry run on a CPU with tiny shapes: it shows that the report is made, and"
                " nothing about a GPU.**"
            ),
            "",
        ]
    lines += [
        *machine_lines(raw),
        "",
        "## Correctness",
        "",
        *table(["what", "outcome"], correctness(raw)),
    ]
    lines += ["", "## Goals", ""]
    lines += table(
        ["what", "goal", "measured: median (range)", ""],
        [[row.what, row.goal, row.text, row.verdict(raw.dry)] for row in rows],
    )
    steps = list(step_rows(raw))
    lines += ["", "## Whole steps", ""]
    if steps:
        formula = raw.json(next(f"steps_{size}" for size in SIZES if raw.json(f"steps_{size}")))[0][
            "formula"
        ]
        head = [
            "size",
            "weights/GEMMs, rule",
            "rows of a micro-batch",
            "tokens/s",
            "ms a step",
            "% of BF16 rate",
            "replayed",
            "loss",
            "parts alone, ms",
        ]
        lines += [f"% = {formula}", "", *table(head, steps)]
    else:
        lines.append(NOT_MEASURED)
    if missing := raw.not_measured():
        lines += ["", "## Not measured", "", *table(["unit", "why"], missing)]
    lines += ["", "## Commands", "", "```"]
    for name in raw.names():
        log = raw.log(name)
        if "command" in log:
            lines.append(
                f"{log['command']}   # {name}, {log.get('date', '')}, {log.get('commit', '')[:12]},"
                f" exit status {log.get('exit status', 'unknown')}"
            )
    return "\n".join([*lines, "```", ""])


def write(directory, output):
    """report.md and report.json of the files in a directory."""
    raw = Raw(directory)
    rows = list(goal_rows(raw))
    figures = {name: raw.json(name) for name in raw.names() if raw.json(name) is not None}
    report = {
        "machine": raw.machine,
        "dry_run": raw.dry,
        "correctness": dict(correctness(raw)),
        "goals": [row.as_json(raw.dry) for row in rows],
        "not_measured": dict(raw.not_measured()),
        "runs": {name: raw.log(name) for name in raw.names()},
        "figures": figures,
    }
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    (output / "report.md").write_text(markdown(raw, rows))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, required=True, help=f"directory of {ARCHIVE} and of the reports"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        unpack(args.output / ARCHIVE, Path(directory))
        write(Path(directory), args.output)
    print(f"{args.output}/report.md, {args.output}/report.json")
