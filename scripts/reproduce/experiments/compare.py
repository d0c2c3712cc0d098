"""Losses of one row beside those of another: differences over seeds, reductions of perplexity, how tables print both.

Losses of a row are {seed: validation loss} of its finished runs; a diverged run has the loss inf. Two rows are compared
by the seeds that both have: a seed fixes the first weights and the order of the text, so the differences of pairs vary
less than the losses.
"""

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Mean over seeds, and the standard error of that mean; NaN of a single seed."""

    mean: float
    error: float

    def __str__(self):
        return f"{self.mean:+.4f}" + ("" if math.isnan(self.error) else f" ± {self.error:.4f}")

    @property
    def reduction(self):
        """Of perplexity, in per cent; positive where it is lower."""
        return 100 * (1 - math.exp(self.mean))

    def is_below(self, errors=0):
        """Whether it is negative by more than so many standard errors; never by any of a single seed."""
        if errors == 0:
            return self.mean < 0
        return not math.isnan(self.error) and self.mean + errors * self.error < 0


def losses_by_seed(artefact, cells):
    """{seed: loss} of the finished ones."""
    return {cell.seed: result.val_loss for cell in cells if (result := artefact.result(cell))}


def difference(losses, baseline):
    """Of losses to the baseline's, None where one diverged or no seed finished in both."""
    if any(map(math.isinf, [*losses.values(), *baseline.values()])):
        return None
    pairs = [losses[seed] - baseline[seed] for seed in losses if seed in baseline]
    if not pairs:
        return None
    error = statistics.stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
    return Difference(statistics.fmean(pairs), error)


def mean_of_common(losses, other):
    """Of the seeds that `other` has too."""
    return statistics.fmean(losses[seed] for seed in losses if seed in other)


def verdict(claim, differences, of_what):
    """A sentence: in how many the claimed negative difference is seen, and in how many beyond the noise of seeds."""
    below, clearly = (sum(found.is_below(errors) for found in differences) for errors in (0, 2))
    several = any(not math.isnan(found.error) for found in differences)
    noise = f", by more than two standard errors in {clearly}" if several else "; single seeds, no standard error"
    return f"{claim} in {below} of {len(differences)} {of_what}{noise}."


def paper_reduction(perplexity, baseline):
    """In per cent, of what the paper prints."""
    return 100 * (1 - perplexity / baseline)


def percent(value):
    return f"{value:.2f} %"


def table(header, rows):
    """Lines of a Markdown table."""
    return [line_of(header), "|" + "---|" * len(header), *map(line_of, rows)]


def line_of(entries):
    return "| " + " | ".join(map(str, entries)) + " |"


def finite_mean(losses):
    """(mean, standard deviation) of {seed: loss}, the deviation of one 0; None if nothing finished or one diverged."""
    values = list(losses.values())
    if not values or not all(map(math.isfinite, values)):
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def perplexity_bar(losses):
    """(exp of the mean loss, how far below and above one standard deviation lies)"""
    found = finite_mean(losses)
    if found is None:
        return None
    mean, deviation = found
    return math.exp(mean), math.exp(mean) - math.exp(mean - deviation), math.exp(mean + deviation) - math.exp(mean)


RECORD = ("seed", "val_loss", "val_loss_family", "steps", "tokens", "state", "fingerprint")


def record(artefact, cell):
    """A cell's line of a CSV, as RECORD names it; finished or not."""
    fingerprint = cell.fingerprint(artefact.args.tokens)
    result = artefact.result(cell)
    if result is None:
        return [cell.seed, "", "", "", "", "not run", fingerprint]
    family = "" if math.isnan(result.val_loss_family) else f"{result.val_loss_family:.6f}"
    return [cell.seed, f"{result.val_loss:.6f}", family, result.steps, result.tokens, result.state, fingerprint]
