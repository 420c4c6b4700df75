"""What the API says of a cell's certificates."""

import msgspec


class CertificatesView(msgspec.Struct, frozen=True):
    """The certificates of one role, as of when the status was asked for: when the first of them ends. Of the
    machines only those that the master has heard since it leads."""

    role: str  # authority, master or machine
    ends_at: str
    seconds_left: float  # less than 0: it is over
    count: int = 1
    near: int = 0  # of them, that are near their end and were not renewed
    machine: str = ""  # whose ends first


class RotationView(msgspec.Struct, frozen=True):
    """How far replacing the cell's authority has come: none, begun (the new one is trusted as well) or
    switched (it signs). ``authority`` is the SHA-256 of the one that signs, ``behind`` the machines that have
    not followed yet; ``moved``: this request went a step on."""

    stage: str
    authority: str
    behind: tuple[str, ...] = ()
    moved: bool = False
