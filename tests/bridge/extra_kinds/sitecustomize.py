"""On PYTHONPATH of a nursery under test: adds kinds of children, and writes down what reaches for the network."""

import os
import sys
from pathlib import Path

WATCHED = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind")


def _watch(path: str) -> None:
    def note(event: str, args: tuple) -> None:
        if event in WATCHED:
            with Path(path).open("a") as file:
                print(os.getpid(), event, repr(args[1:]), file=file)

    sys.addaudithook(note)


if "SWARMLAB_TEST_KINDS" in os.environ:
    import swarmlab.bridge

    swarmlab.bridge.__path__.append(os.environ["SWARMLAB_TEST_KINDS"])
if "SWARMLAB_TEST_AUDIT" in os.environ:
    _watch(os.environ["SWARMLAB_TEST_AUDIT"])
