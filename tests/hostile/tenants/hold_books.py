"""HELLO, and hold some bytes. Later another process of this container sees them in its books.

Word: a file; the other process begins when it is gone.
"""

import os
import sys
import time
from pathlib import Path

import tenant

GIB = 1 << 30

welcome = tenant.hello()
assert welcome is not None
assert welcome.status == 0, welcome.reason
place = tenant.LAYOUT["used"] + 8 * welcome.slot
tenant.write(tenant.books(welcome.books), place, GIB)
tenant.say("slot", welcome.slot)
while Path(sys.argv[1]).exists():
    time.sleep(0.05)
if os.fork() == 0:
    other = tenant.hello()
    assert other is not None
    assert other.status == 0, other.reason
    tenant.say("slot", other.slot, "beside", tenant.read(tenant.books(other.books), place))
time.sleep(600)
