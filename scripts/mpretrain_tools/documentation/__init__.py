"""The site made of docs/: its generated reference pages, and the hooks of mkdocs.yml."""
