"""HELLO as shims said it before they opened the configuration by themselves."""

import tenant

welcome = tenant.hello(old=True)
assert welcome is not None
tenant.say(welcome.status, len(welcome.descriptors), welcome.reason)
