"""A process with books and without descriptors, and a later one of the same container.

Word: a file; while it is there nothing happens. Then HELLO, the first process ends, HELLO again.
"""

import os
import sys
import time
from pathlib import Path

import tenant

stay = Path(sys.argv[1])
holder = os.fork()
if holder == 0:
    welcome = tenant.hello()
    assert welcome is not None
    page = tenant.books(welcome.books)
    os.closerange(3, 1024)  # before it says so: the next manager may ask for the books at once
    tenant.say("holding")
    time.sleep(600)
while stay.exists():
    time.sleep(0.05)
refused = tenant.hello()
assert refused is not None
tenant.say(refused.status, refused.reason)
os.kill(holder, 9)
os.waitpid(holder, 0)
while True:
    served = tenant.hello()
    if served is not None and served.status == 0:
        break
    time.sleep(0.1)
tenant.say(served.status)
tenant.say("ended")
time.sleep(600)
