"""A chat command that answers messages such as "rank of ada".

python examples/chat_command.py http://127.0.0.1:8080 arena "rank of player-7"
"""

import sys

from rankcurve import Client
from rankcurve.errors import NotFoundError


def answer(client: Client, board: str, text: str) -> str:
    command, _, owner = text.partition(" of ")
    if command != "rank" or not owner:
        return "I know: rank of NAME"
    try:
        ranked = [each for each in client.positions(board, owner) if each.rank is not None]
    except NotFoundError:
        return f"{owner} has not played yet"
    return f"{owner}: " + ", ".join(f"#{each.rank} of {each.total} in {each.column}" for each in ranked)


with Client(sys.argv[1]) as client:
    print(answer(client, sys.argv[2], sys.argv[3]))
