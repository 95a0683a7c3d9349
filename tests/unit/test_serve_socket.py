"""The socket that is served on."""

import asyncio
import socket

from facetline.streams.cli import serve


async def test_replies_are_sent_at_once() -> None:
    """What comes in over the bound socket is answered without waiting for acknowledgements (no Nagle)."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = writer.get_extra_info("socket")
        found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = serve._bound("127.0.0.1", 0)
    async with await asyncio.start_server(answer, sock=listener):
        _reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(10):
            no_delay = await found
        writer.close()
        await writer.wait_closed()

    assert no_delay
