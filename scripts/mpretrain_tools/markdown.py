"""Markdown that several reports write."""

import re


def table(head, rows):
    """Lines of a table; entries are written as they are, so a | in one needs a backslash."""
    line = "| {} |".format
    return [
        line(" | ".join(map(str, head))),
        "|" + "---|" * len(head),
        *(line(" | ".join(map(str, row))) for row in rows),
    ]


def filled(text, begin, end, lines):
    """The text with the lines between the lines `begin` and `end`; None if it has no such lines."""
    pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(text):
        return None
    body = "\n".join(lines)
    return pattern.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text)
