"""A child asks by the connection of its parent, which has ended: `SOCKET`; prints the status."""

import os
import sys
from pathlib import Path

from tests.limits.programs.hello_client import OBSERVER, connect, receive

connection, caller = connect(Path(sys.argv[1])), os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == caller:
    pass
connection.sendall(OBSERVER)
answer = receive(connection)
sys.stdout.write(f"{answer and answer.status}\n")
