"""A hook of mkdocs: pages may link to files outside of docs/, as they do where the code is read.

The front page is README.md. What a page links to comes along, below `repository/` in the site:
Markdown as a page, all else as it is. So that CONTRIBUTING.md and its like lie where people look
for them, and the site loads nothing from elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = "repository/"
"""Where the site has what is not in docs/."""

FRONT = "index.md"

LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)")


def on_files(files: Files, /, *, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of docs/, and what that links to."""
    root = root_of(config)
    files.append(File.generated(config, FRONT, abs_src_path=str(root / "README.md")))
    todo = [file.src_uri for file in files.documentation_pages()]
    while todo:
        for path in linked(root, todo.pop()):
            uri = uri_of(path)
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(root / path)))
                todo += [uri] if uri.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where the site has their files."""
    uri = page.file.src_uri
    here = posixpath.dirname(uri)

    def moved(link: re.Match[str]) -> str:
        path = path_of(uri, link[2])
        if not (root_of(config) / path).is_file():
            return link[0]  # mkdocs reports it
        return link[1] + posixpath.relpath(uri_of(path), here or ".")

    return LINK.sub(moved, markdown)


def root_of(config: MkDocsConfig) -> Path:
    """Return the repository's folder, which docs/ is in."""
    return Path(config.docs_dir).parent


def linked(root: Path, uri: str) -> list[str]:
    """Return which files a page links to, as paths from the root of the repository."""
    text = (root / source(uri)).read_text(encoding="utf-8")
    paths = [path_of(uri, link[2]) for link in LINK.finditer(text)]
    return [path for path in paths if (root / path).is_file()]


def source(uri: str) -> str:
    """Return where in the repository a file of the site comes from."""
    if uri == FRONT:
        return "README.md"
    return uri.removeprefix(OUTSIDE) if uri.startswith(OUTSIDE) else f"docs/{uri}"


def uri_of(path: str) -> str:
    """Return where in the site a file of the repository is."""
    if path == source(FRONT):
        return FRONT
    return path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE + path


def path_of(uri: str, target: str) -> str:
    """Return which file of the repository a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source(uri)), target))
