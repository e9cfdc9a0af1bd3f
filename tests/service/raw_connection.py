"""Send bytes to a service on a connection of their own, and read what comes back until the service closes it."""

import asyncio


async def exchange(port: int, *sent: bytes) -> bytes:
    """Send each piece after the one before is answered. Return all answers until the service closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = b""
    for index, piece in enumerate(sent):
        if index:
            answers += await reader.readuntil(b"}")
        writer.write(piece)
    async with asyncio.timeout(60):
        answers += await reader.read()
    writer.close()
    return answers
