"""Entries of Markdown tables, for tests."""


def entries(line):
    return [entry.strip() for entry in line.strip("|").split("|")]


def line_with(lines, *first):
    """Entries of the one table line that begins so."""
    found = [entries(line) for line in lines if entries(line)[: len(first)] == list(first)]
    assert len(found) == 1, (first, lines)
    return found[0]
