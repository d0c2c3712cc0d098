"""What `mpretrain plan --json` counts of a rank: memory, bytes sent, and who owns what."""

import dataclasses
import functools
import json

from ..sweeps.plan import run_plan


@dataclasses.dataclass(frozen=True)
class Counted:
    """Bytes and counts, of rank 0 where ranks differ."""

    memory: dict  # by purpose
    total: int  # of all purposes
    stored_bytes: int  # of the logical elements and scales of all weights
    state_bytes_a_parameter: float
    micro_batch_rows: int
    micro_batches: int
    sent: dict  # gradients, weights, norm, losses, scales; of one rank none
    most_elements: int  # parameters of the rank that updates most
    buckets: tuple  # as docs/formats.md has them

    @property
    def norm_sums(self):
        return sum(bucket["norm_sums"] for bucket in self.buckets)

    @property
    def sent_bytes(self):
        return sum(self.sent.values())


@functools.cache
def count(program, config, ranks, settings):
    """Of a file of configs/ and changes to it, ("key.path=value", ...)."""
    plan = json.loads(run_plan(program, ["--json", "--ranks", str(ranks)], config, settings))
    memory = dict(plan["allocated_bytes"])
    sent = {kind: n for kind, n in plan.get("bytes_sent_per_step", {}).items() if kind in KINDS}
    exchange = plan.get("exchange", {"most_elements": plan["parameters"], "buckets": ()})
    return Counted(
        total=memory.pop("total"),
        memory=memory,
        stored_bytes=plan["logical_bytes"]["weights"],
        state_bytes_a_parameter=plan["nominal_bytes_per_parameter"]["optimizer_state"],
        micro_batch_rows=plan["rows"]["micro_batch"],
        micro_batches=plan["rows"]["micro_batches"],
        sent=sent,
        most_elements=exchange["most_elements"],
        buckets=tuple(exchange["buckets"]),
    )


KINDS = ("gradients", "weights", "norm", "losses", "scales")
