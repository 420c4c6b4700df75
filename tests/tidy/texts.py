"""The files that the house rules speak of."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "borgish", "configs", "docs", "migrations", "scripts", "tests")
BINARY = {".pyc", ".db", ".gz", ".zst"}


def texts() -> list[Path]:
    """Return every file people wrote, not the locks."""
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    top = (path for path in ROOT.iterdir() if path.suffix in (".md", ".toml", ".yml"))
    return sorted(
        path
        for path in (*inside, *top)
        if path.is_file() and path.suffix not in BINARY and "__pycache__" not in path.parts
    )


def pythons() -> list[Path]:
    return [path for path in texts() if path.suffix == ".py"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))
