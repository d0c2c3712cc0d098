"""Extracts plain English text from a Debian package of documentation.

    dpkg-deb --fsys-tarfile PACKAGE.deb |
        PYTHONPATH=scripts python3 -m mpretrain_tools.corpus.extract_text KIND > text.txt

Writes one document a block: one paragraph a line, an empty line between documents. The same package
gives the same bytes: files are taken in the order of their names. Only the standard library is
needed.
"""

import argparse
import gzip
import html.parser
import io
import re
import sys
import tarfile

MIN_DOCUMENT = 80  # characters; what is shorter is a heading or a cross-reference
# characters; a longer section is cut between paragraphs, so that a split by documents is even
MAX_DOCUMENT = 6000


def squeeze(text):
    """One paragraph on one line."""
    return re.sub(r"\s+", " ", text).strip()


def blocks(paragraphs):
    """The documents of one section: as many as its length asks for, none where there is too little
    text.
    """
    block, length = [], 0
    for paragraph in filter(None, map(squeeze, paragraphs)):
        if block and length + len(paragraph) > MAX_DOCUMENT:
            yield "\n".join(block)
            block, length = [], 0
        block.append(paragraph)
        length += len(paragraph) + 1
    if length > MIN_DOCUMENT:
        yield "\n".join(block)


class HtmlSections(html.parser.HTMLParser):
    """Collects the paragraphs of a page; a heading of level 1 to 3 starts a new section."""

    HIDDEN = {"script", "style", "nav", "table", "pre", "head", "footer"}
    HEADINGS = {"h1", "h2", "h3"}
    BREAKS = HEADINGS | {
        "h4",
        "h5",
        "h6",
        "p",
        "div",
        "section",
        "blockquote",
        "ul",
        "ol",
        "dl",
        "li",
        "dt",
        "dd",
        "br",
    }

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.sections = [[]]
        self.paragraph = []
        self.hidden = 0

    def flush(self):
        self.sections[-1].append("".join(self.paragraph).replace("\u00b6", ""))
        self.paragraph = []

    def handle_starttag(self, tag, attrs):
        if tag in self.HIDDEN:
            self.hidden += 1
        if tag in self.BREAKS:
            self.flush()
        if tag in self.HEADINGS:
            self.sections.append([])

    def handle_endtag(self, tag):
        if tag in self.HIDDEN:
            self.hidden = max(0, self.hidden - 1)
        if tag in self.BREAKS:
            self.flush()

    def handle_data(self, data):
        if not self.hidden:
            self.paragraph.append(data)


def html_sections(text):
    """Of a page made by Sphinx only the body, not the navigation around it."""
    body = text.partition('role="main">')[2] or text
    parser = HtmlSections()
    parser.feed(body.partition('<div class="sphinxsidebar"')[0])
    parser.close()
    parser.flush()
    return parser.sections


POD_ENTITY = {"lt": "<", "gt": ">", "sol": "/", "verbar": "|"}


def pod_plain(text):
    """Resolves E<gt>, L<text|target>, and drops the letters of C<...>, I<<< ... >>> and their
    like.
    """
    text = re.sub(r"E<(\w+)>", lambda m: POD_ENTITY.get(m[1], ""), text)
    text = re.sub(r"[XZ]<[^<>]*>", "", text)
    text = re.sub(r"[A-Z](<<+)\s(.*?)\s>>+", r"\2", text, flags=re.S)
    for _ in range(3):  # as deep as they are nested in practice
        text = re.sub(r"L<([^<>|]*)\|[^<>]*>", r"\1", text)
        text = re.sub(r"[BCFILS]<([^<>]*)>", r"\1", text)
    return text


def pod_sections(text):
    """Prose paragraphs of a pod; =head1 and =head2 start a section, indented (verbatim) ones are
    code.
    """
    sections, hidden = [[]], False
    for paragraph in re.split(r"\n[ \t]*\n", text):
        if paragraph.startswith("="):
            command, _, rest = paragraph.partition(" ")
            hidden = command in ("=begin", "=for", "=encoding") or (hidden and command != "=end")
            if command in ("=head1", "=head2"):
                sections.append([])
            if command.startswith("=head") or (command == "=item" and " " in rest):
                sections[-1].append(pod_plain(rest))
        elif not hidden and not paragraph.startswith((" ", "\t")):
            sections[-1].append(pod_plain(paragraph))
    return sections


def dictionary_sections(text):
    """GCIDE: one section an entry; without etymologies and source marks in [..], pronunciations,
    braces of links.
    """
    for entry in re.split(r"\n\n(?=\S)", text.partition("\nA \\A")[2] or text):
        entry = re.sub(r"\\[^\\\n]*\\", "", entry)
        for _ in range(2):
            entry = re.sub(r"\[[^\[\]]*\]", "", entry)
        entry = re.sub(r"\([^()]*\[[^()]*\)", "", entry).replace("{", "").replace("}", "")
        yield re.split(r"\n[ \t]*\n", re.sub(r"[ \n]+([,.;])", r"\1", entry))


def gloss_sections(text):
    """WordNet data files: the definition and examples of each synset; neighbours are related."""
    lines = [line for line in text.splitlines() if not line.startswith("  ") and "| " in line]
    return [[line.split("| ", 1)[1] for line in lines]]


# kind: (pattern of the paths in the package, sections of a file's text as lists of paragraphs)
KINDS = {
    "html": (r"\.html$", html_sections),
    "pod": (r"\.pod$", pod_sections),
    "dictionary": (r"\.dict\.dz$", dictionary_sections),
    "glosses": (r"/data\.\w+$", gloss_sections),
}
# Pages of links, indices and change logs in the packages' documentation.
SKIPPED = re.compile(
    r"genindex|py-modindex|/(search|download|contents)\.html"
    r"|/whatsnew/changelog|_sources/|perl\w*delta"
)


def files(stream, pattern):
    """(path, text) of the matching regular files, by path."""
    found = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if (
                member.isfile()
                and re.search(pattern, member.name)
                and not SKIPPED.search(member.name)
            ):
                data = archive.extractfile(member).read()
                found[member.name] = gzip.decompress(data) if member.name.endswith(".dz") else data
    for name in sorted(found):
        yield name, found[name].decode("utf-8", errors="replace").replace("\r\n", "\n")


def print_blocks():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kind", choices=KINDS)
    kind = parser.parse_args().kind
    pattern, sections = KINDS[kind]
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    for _, text in files(sys.stdin.buffer, pattern):
        for section in sections(text):
            out.writelines(block + "\n\n" for block in blocks(section))
    out.flush()


def main():
    try:
        print_blocks()
    except (tarfile.TarError, OSError, EOFError) as problem:
        sys.exit(
            f"extract_text: error: standard input: {problem}; expected the output of"
            " `dpkg-deb --fsys-tarfile`"
        )


if __name__ == "__main__":
    main()
