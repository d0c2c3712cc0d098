"""Hooks of mkdocs.yml, with which pages that are written for GitHub build as a site.

Some pages outside of docs/ are added to the site, and notes that are appended to other pages are
left out. A link to any other file outside of docs/, such as source code, is replaced by its text.
"""

import fnmatch
import posixpath
import re

OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # pages of the repository's root
LEFT_OUT = "*.notes.md"
LINK = re.compile(r"\[([^\]]*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def rewritten(markdown, source, outside=OUTSIDE):
    """The page's text with links that lead somewhere in the site; source: as mkdocs names it."""
    place = source if source in outside else f"docs/{source}"

    def link(match):
        text, path, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        if target not in outside and not target.startswith("docs/"):
            return text
        relative = posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(source))
        return f"[{text}]({relative}{anchor})"

    return LINK.sub(link, markdown)


def on_files(files, config):
    from mkdocs.structure.files import File

    root = posixpath.dirname(config["config_file_path"])
    for file in list(files):
        if fnmatch.fnmatch(file.src_path, LEFT_OUT):
            files.remove(file)
    for page in OUTSIDE:
        files.append(File(page, root, config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, page, **_):
    return rewritten(markdown, page.file.src_path)
