"""A tunnel from one host's loopback to another's, in place of SSH's, which is not installed here.

Hosts are network namespaces on one machine: they share no network and all files, so that the two
ends of the tunnel meet at a socket in a folder.

    tunnel.py near SOCKET PORT     hands what comes to 127.0.0.1:PORT to SOCKET
    tunnel.py far SOCKET PORT      hands what comes to SOCKET to 127.0.0.1:PORT
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress


async def pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(end: str, path: str, port: int) -> None:
    async def joined(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            if end == "near":
                further = await asyncio.open_unix_connection(path)
            else:
                further = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, further[1]), pump(further[0], writer))

    if end == "near":
        server = await asyncio.start_server(joined, "127.0.0.1", port)
    else:
        server = await asyncio.start_unix_server(joined, path)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
