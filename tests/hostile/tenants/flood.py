"""Calls its socket as fast as it goes. flood.py CALLS KIND [SECONDS]: hello or junk."""

import os
import socket
import sys
import time
from collections import Counter

import tenant


def call() -> None:
    if sys.argv[2] == "hello":
        welcome = tenant.hello()
        for descriptor in welcome.descriptors if welcome is not None else ():
            os.close(descriptor)
    else:
        with socket.socket(socket.AF_UNIX) as connection:  # waits where the queue is full
            connection.connect(tenant.SOCKET)
            connection.send(b"junk" * 16)


ends = time.monotonic() + float(sys.argv[3] if len(sys.argv) > 3 else "inf")
errors: Counter[int | None] = Counter()
calls = 0
while calls < int(sys.argv[1]) and time.monotonic() < ends:
    try:
        call()
    except OSError as error:  # hung up
        errors[error.errno] += 1
    calls += 1
tenant.say("done", calls, "errors", dict(errors))
