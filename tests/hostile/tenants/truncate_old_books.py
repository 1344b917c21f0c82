"""A container that an older agent began: its shim's HELLO, then the books are cut."""

import os
import time

import tenant

welcome = tenant.hello(old=True)
assert welcome is not None
tenant.say(welcome.status, "descriptors", len(welcome.descriptors))
again = tenant.hello()
assert again is not None
tenant.say("again", again.status)
os.ftruncate(welcome.books, 0)
tenant.say("truncated")
while True:
    refused = tenant.hello()
    if refused is not None and refused.status != 0:
        tenant.say("lost", refused.status)
        break
    time.sleep(0.1)
time.sleep(600)
