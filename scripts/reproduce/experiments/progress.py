"""What is running, what is done and how long it may still take: a table on a terminal, plain lines in a log."""

import time


class LiveTable:
    """Called with {cell: Status} whenever one changes."""

    def __init__(self, name, jobs):
        self.name, self.jobs, self.start, self.shown = name, jobs, time.monotonic(), {}

    def __call__(self, statuses):
        done = sum(status.state in ("finished", "diverged", "failed") for status in statuses.values())
        for cell, status in statuses.items():
            if status.state != self.shown.get(cell) and status.state not in ("waiting", "running"):
                error = f": {status.error}" if status.error else ""
                print(f"{self.name} {done}/{len(statuses)} {cell.config} seed {cell.seed} {cell.described_changes()}: "
                      f"{status.state}{error} | {status.seconds:.0f} s", flush=True)
            self.shown[cell] = status.state
