"""Writes docs/benchmarks/gpu_model.md: how long a training step on an H200 is predicted to take, by
size and regime, beside the goals. Needs no GPU.

  scripts/bench.py gpu_model             writes the page
  scripts/bench.py gpu_model --check     fails if the page is another

Bytes and FLOPs are those that `mpretrain plan --json` counts, rates those of
mpretrain_tools/machines.json: whoever changes either writes the page anew.
"""

import argparse
import dataclasses

from .. import repository
from ..markdown import table
from ..sweeps import options
from .gpu_check_report import FP8_GOALS, RATE_GOALS
from .step_model import (
    ASSUMED,
    MEASURED,
    REGIMES,
    ROWS,
    SIZES,
    Step,
    assumptions,
    bytes_of,
    changed,
    over_bf16,
)

PAGE = repository.ROOT / "docs/benchmarks/gpu_model.md"
LABELS = {"bf16": "BF16/BF16", "fp8": "FP8/FP8", "nvfp4": "NVFP4/FP8"}
CHANGE = 1.1  # of an assumption, for the table of what each moves
MARK = "**Predicted, not measured.**"  # of every section but the one of this title:
MEASURED_TITLE = "Beside what was measured"

HEAD = """# A predicted step on a GPU

<!-- Written by scripts/bench.py gpu_model; change that. -->

{mark} Bytes and FLOPs are what `mpretrain plan --json` counts
(`work`, [Files](../formats.md)), and everything else is an assumption, measured or not, that is
named below. It shows where the time of a step should go, which goals are within reach by this
reckoning, and which assumption decides. [GPU](gpu.md#on-an-h200) has what was measured since, and
the next section puts both side by side.

A step has {tokens:,} tokens in rows of 1024, with M+Adam, in the largest micro-batches that the
memory holds, without recomputation, and with attention by cuDNN. A part is its bytes or FLOPs over
one rate, and parts do not overlap.
"""


class Page:
    def __init__(self, program):
        self.program = program
        self.a = assumptions()

    def step(self, size, regime, **more):
        return Step(self.program, size, regime, **more)

    def lines(self):
        head = HEAD.format(mark=MARK, tokens=self.step("60m", "bf16").tokens)
        yield from head.splitlines()
        yield from ("", f"## {MEASURED_TITLE}", "", *self.beside_measured())
        sections = {
            "Goals": self.goals,
            "Parts of a step": self.parts,
            "Bytes of the passes, 350m": self.passes,
            "Casting weights in every micro-batch": self.recasts,
            "Assumptions": self.assumptions,
            "What each assumption moves": self.sensitivity,
        }
        for title, section in sections.items():
            yield from ("", f"## {title}", "", MARK, "", *section())

    def text(self):
        return "\n".join(self.lines()) + "\n"

    # --- sections ---------------------------------------------------------------------------------

    def beside_measured(self):
        rows = []
        for (size, regime), measured in MEASURED.items():
            predicted = 1e3 * self.step(size, regime).seconds(self.a)
            cells = [f"{predicted:.0f}", f"{measured:.1f}", f"{measured / predicted:.2f}"]
            rows.append([size, LABELS[regime], *cells])
        head = ["size", "weights/GEMMs", "predicted, ms", "measured, ms", "measured / predicted"]
        yield from table(head, rows)
        yield from (
            "",
            "That the sum of the parts is right does not make the parts right: norm and update",
            "take 7.2 ms at 350m and 24.9 ms at 1b in BF16, 2.4 and 1.9 times the prediction",
            "(the norm 0.3 and 1.2 ms, so that the excess is the update's), and some GEMM rates",
            "below are guessed above the measured `bf16_peak`, so that other parts must be",
            "overestimated.",
        )

    def goals(self):
        rows = []
        for size, goal in RATE_GOALS.items():
            step = self.step(size, "bf16")
            percent = step.percent(self.a)
            what = f"{size} BF16/BF16, % of the BF16 rate"
            rows.append([what, f">= {goal}", f"{percent:.0f}", *self.missed(step, percent, goal)])
        for size, goal in FP8_GOALS.items():
            step = self.step(size, "fp8")
            ratio = over_bf16(step, self.a)
            what = f"{size} FP8/FP8 tokens/s over BF16/BF16"
            rows.append([what, f">= {goal}", f"{ratio:.2f}", *self.missed(step, ratio, goal)])
        yield from table(["what", "goal", "predicted", "by this reckoning", "ms too many"], rows)
        yield from (
            "",
            "A goal that is reached here is reached by parts that are guesses, also where their",
            "sum is near what was measured.",
            "",
            "What stands between, by the parts below: passes and casts, attention's deterministic",
            "backward pass, and the head, which stays in BF16. Open ways, none of which is counted",
            "here: an FP8 head (`precision.fp8_lm_head`), attention without determinism",
            "(`device.deterministic_attention=false`), fast sums in backward GEMMs.",
        )

    def missed(self, step, value, goal):
        """The verdict, and the milliseconds of a step that are too many."""
        over = 1e3 * step.seconds(self.a) * (1 - value / goal)
        return verdict(value, goal), "" if value >= goal else f"{over:.0f}"

    def parts(self):
        rows = []
        for size in SIZES:
            for regime in REGIMES:
                step = self.step(size, regime)
                parts = step.parts(self.a)
                ratio = "" if regime == "bf16" else f"{over_bf16(step, self.a):.2f}"
                rows.append(
                    [size, LABELS[regime], step.micro_batches(self.a)]
                    + [f"{1e3 * seconds:.1f}" for seconds in parts.values()]
                    + [f"**{1e3 * sum(parts.values()):.0f}**", f"{step.percent(self.a):.0f}", ratio]
                )
        head = ["size", "weights/GEMMs", "micro-batches", *parts]
        yield from table([*head, "total", "% of BF16 rate", "over BF16"], rows)
        yield from (
            "",
            "Milliseconds. % of the BF16 rate is (6 N + 6 L C T) tokens/s over the BF16 rate",
            "below, as [GPU](gpu.md) defines it. Sums of gradients: FP32 sums over several",
            "micro-batches, and their rounding.",
        )

    def passes(self):
        found = {}
        for regime in ("fp8", "bf16"):
            step = self.step("350m", regime)
            for one in step.work["passes"]:
                cells = [
                    one["calls"],
                    f"{bytes_of(one):,.0f}",
                    f"{1e3 * step.pass_seconds(self.a, one):.2f}",
                ]
                found.setdefault((one["operation"], one["what"]), {})[regime] = cells
        rows = [
            [operation, what, *of.get("bf16", ["", "", ""]), *of.get("fp8", ["", "", ""])]
            for (operation, what), of in found.items()
        ]
        head = ["operation", "of what"]
        for regime in ("BF16", "FP8"):
            head += [f"{regime}: calls", "bytes a token", "ms"]
        yield from table(head, rows)
        yield from (
            "",
            "`src/plan/step_work.cpp` is the one list of them: who fuses two operations changes",
            "it there, and this page follows.",
        )

    def recasts(self):
        rows = []
        for size in SIZES:
            for regime in ("fp8", "nvfp4"):
                step = self.step(size, regime)
                most = step.plan["rows"]["step"] // ROWS
                times = [step.recast_seconds(self.a, n) for n in (step.micro_batches(self.a), most)]
                once = dataclasses.replace(step, codes="all_layers").recast_seconds(self.a, 1)
                rows.append([size, LABELS[regime], *(f"{1e3 * t:.2f}" for t in (once, *times))])
        head = ["size", "weights/GEMMs", "once a step", "each of the largest micro-batches"]
        yield from table([*head, f"each micro-batch of {ROWS} rows"], rows)
        yield from (
            "",
            "Milliseconds of a step for the casts of the linear layers' weights to FP8, both",
            "layouts: once a step with `device.fp8_weight_codes=all_layers`, else with the",
            "`one_layer` of a GPU ([memory](../start/memory.md#codes-of-weights)).",
        )

    def assumptions(self):
        rows = []
        for name, of in ASSUMED.items():
            text = f"{of.value:g}" if not isinstance(of.value, dict) else rates_text(of.value)
            rows.append([f"`{name}`", of.what, f"{text} {of.unit}".strip(), of.why])
        return table(["name", "what", "value", "whence"], rows)

    def sensitivity(self):
        """By how far the most sensitive of the goals moves."""
        rows = [(name, self.moved(name)) for name in ASSUMED]
        rows.sort(key=lambda row: -max(map(abs, row[1])))
        shown = [
            [f"`{name}`", *(f"{round(100 * move, 2) + 0.0:+.2f}" for move in moves)]
            for name, moves in rows
        ]
        head = ["assumption", "350m BF16/BF16, % of the rate"]
        head += [f"{size} {LABELS[regime]}, time" for size, regime in self.WATCHED]
        head += [f"{size} FP8 over BF16" for size in FP8_GOALS]
        percent = round(100 * (CHANGE - 1))
        yield from table(head, shown)
        yield from (
            "",
            f"Percent of it by which a step's share of the BF16 rate, its time or a ratio of rates"
            f" changes where the assumption is {percent} % larger; what moves most first.",
        )

    WATCHED = (("350m", "bf16"), ("350m", "fp8"), ("1b", "fp8"))

    def moved(self, name):
        other = changed(self.a, name, CHANGE)
        share = self.step("350m", "bf16").percent
        steps = [self.step(size, regime) for size, regime in self.WATCHED]
        ratios = [self.step(size, "fp8") for size in FP8_GOALS]
        times = [step.seconds(other) / step.seconds(self.a) - 1 for step in steps]
        of_ratios = [over_bf16(step, other) / over_bf16(step, self.a) - 1 for step in ratios]
        return [share(other) / share(self.a) - 1, *times, *of_ratios]


def rates_text(rates):
    return ", ".join(f"{key}: {rate:g}" for key, rate in rates.items())


def verdict(value, goal):
    return "reached" if value >= goal else f"missed by {100 * (goal / value - 1):.0f} %"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 if it differs"
    )
    options.add_program(parser)
    args = parser.parse_args()
    text = Page(args.program).text()
    if args.check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("up to date" if same else f"{PAGE} differs: run scripts/bench.py gpu_model")
        return int(not same)
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0
