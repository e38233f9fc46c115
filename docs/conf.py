"""The documentation site, for Sphinx: `make site`. Its pages are the Markdown files of this folder, as on GitHub.

The lists of index.md are the navigation too: each heading is a group, and each link to a page an entry.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial

from sphinx.application import Sphinx

from gptcli import __version__

project = "gptcli"
author = "the gptcli authors"
project_copyright = "the gptcli authors, MIT license"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.*"]
html_theme = "furo"
html_title = f"gptcli {version}"
html_copy_source = False
html_static_path = ["site"]
html_css_files = ["site.css"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"

myst_heading_anchors = 4  # the anchors that GitHub gives to headings, so that links work on both

smartquotes_action = "D"  # dashes; quotation marks stay as they are, since many belong to code

# Docstrings have single backticks around names, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
suppress_warnings = ["ref.python"]  # attributes called `bytes` beside the type

GROUP = re.compile(r"^## (.+)$")
ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[\w/-]+)\.md\)")

UPWARD = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\./[\w/.-]+\.md)(#[\w-]+)?\)")


def navigation(index: str) -> str:
    """The tables of contents that Sphinx needs, hidden, from the headings and links of the front page."""
    lines = []
    for line in index.splitlines():
        if group := GROUP.match(line):
            lines += ["```", "", "```{toctree}", ":hidden:", f":caption: {group[1]}", ""]
        elif entry := ENTRY.match(line):
            lines.append(f"{entry['title']} <{entry['page']}>")
    return "\n".join([*lines[1:], "```", ""])


def download(page: str, link: re.Match[str]) -> str:
    """A link to a file outside of docs/, which is no page of the site, as a download; another link as it is."""
    is_outside = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["path"])).startswith("..")
    return f"{{download}}`{link['text']} <{link['path']}>`" if is_outside else link[0]


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Change a page as Sphinx reads it: links that leave docs/, and the navigation of the front page."""
    source[0] = UPWARD.sub(partial(download, page), source[0])
    if page == app.config.root_doc:
        source[0] += "\n" + navigation(source[0])


def link_pages(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Make the pages that a docstring names, such as docs/data.md, links."""
    lines[:] = [re.sub(r"docs/(\w+)\.md", r":doc:`\1.md </\1>`", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", link_pages)
