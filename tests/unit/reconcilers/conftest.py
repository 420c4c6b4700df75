"""What tests of the reconcilers begin with."""

from tests.unit.cell.conftest import lived

__all__ = ["lived"]
