"""The clients for scripts know a master by its cell's own authority."""

import asyncio
from pathlib import Path

from borgish import AsyncClient, Client
from borgish.errors import BorgishError
from borgish.masters import Untrusted
from tests.integration.tls.test_own_authority import Place


async def cell_name(client: AsyncClient) -> str:
    async with client:
        try:
            return (await client.status()).cell
        except BorgishError as error:
            return type(error).__name__


def test_a_cell_with_an_authority_of_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.running():
        with Client(folder=place.cell) as client:
            assert client.status().cell == "c1"
        assert asyncio.run(cell_name(AsyncClient(folder=place.cell))) == "c1"
        token = (place.cell / "tokens" / "admin.token").read_text().strip()
        assert asyncio.run(cell_name(AsyncClient(place.url, token))) == Untrusted.__name__
