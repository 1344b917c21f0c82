"""Calls its socket as fast as it goes. flood.py CALLS KIND: hello or junk."""

import os
import socket
import sys

import tenant

for _ in range(int(sys.argv[1])):
    try:
        if sys.argv[2] == "hello":
            welcome = tenant.hello()
            for descriptor in welcome.descriptors if welcome is not None else ():
                os.close(descriptor)
        else:
            with socket.socket(socket.AF_UNIX) as connection:  # waits where the queue is full
                connection.connect(tenant.SOCKET)
                connection.send(b"junk" * 16)
    except OSError as error:
        tenant.say("error", error.errno)
        break
tenant.say("done")
