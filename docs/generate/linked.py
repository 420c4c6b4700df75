"""Links from pages to files of the repository that are no pages, as examples and the tour of the code are.

They are written as they are followed in the repository. On the site each such file is a page of its own.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs/"
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "explanation/security.md",
    "borgish/README.md": "explanation/tour.md",
    "tests/bench/README.md": "benchmarks/how.md",
}
"""Files of the repository that have a place among the pages; all else that is linked is in ``files/``."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_LANGUAGES = {".md": "markdown", ".service": "ini", ".toml": "toml", ".yaml": "yaml", ".jsonnet": "jsonnet"}


def linked_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return a page, by its place on the site, for each file that is linked from these, or has a place.

    ``pages`` are texts in Markdown by their path in the repository. Raises FileNotFoundError for a file that
    is not there.
    """
    made: dict[str, str] = {}
    missing = [*PAGES, *(path for page, text in pages.items() for path in _outside(page, text))]
    while missing:
        path = missing.pop()
        if place_of(path) in made:
            continue
        text = _shown(ROOT / path)
        made[place_of(path)] = rewritten(path, text)
        if path.endswith(".md"):
            missing += _outside(path, text)
    return made


def rewritten(path: str, text: str) -> str:
    """Return a page with its links as they are on the site. ``path`` is its own in the repository."""
    here = posixpath.dirname(place_of(path))

    def to(link: re.Match[str]) -> str:
        target = _target(path, link)
        return posixpath.relpath(place_of(target), here or ".") + (link[2] or "")

    return _LINK.sub(to, text)


def place_of(path: str) -> str:
    """Return where on the site a file of the repository is."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return PAGES.get(path) or f"files/{path.removesuffix('.md')}.md"


def _outside(page: str, text: str) -> Iterator[str]:
    """Return the files of the repository that a page links to and that are not among the pages."""
    targets = (_target(page, link) for link in _LINK.finditer(text))
    return (target for target in targets if not target.startswith(DOCS))


def _target(page: str, link: re.Match[str]) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))


def _shown(path: Path) -> str:
    """Return a file, or all files of a folder, as a page."""
    if path.suffix == ".md":
        return path.read_text()
    name = path.relative_to(ROOT)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    heads = [f"## {file.name}\n\n" if path.is_dir() else "" for file in files]
    blocks = [f"```{_LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}```\n" for file in files]
    return "\n".join([f"# {name}\n", *(head + block for head, block in zip(heads, blocks, strict=True))])
