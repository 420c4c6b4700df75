"""The hooks of MkDocs: they add the pages that are made from the code and from files of this repository."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(Path(__file__).parents[2]))  # `mkdocs build` looks for modules in its own folder only

from docs.generate.linked import DOCS, linked_pages, rewritten
from docs.generate.reference import reference


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that nobody wrote."""
    written = {f"{DOCS}{file.src_uri}": file.content_string for file in files.documentation_pages()}
    made = reference()
    linked = linked_pages(written | {f"{DOCS}{uri}": text for uri, text in made.items()})
    made = {uri: rewritten(f"{DOCS}{uri}", text) for uri, text in made.items()}
    for uri, text in (made | linked).items():
        file = File.generated(config, uri, content=text)
        if uri.startswith("files/"):
            file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Have links to files of the repository lead to their pages."""
    del config, files
    return rewritten(f"{DOCS}{page.file.src_uri}", markdown) if not page.file.generated_by else markdown
