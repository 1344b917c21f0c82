"""HELLO, as any program does: what came back."""

import os

import tenant

welcome = tenant.hello()
assert welcome is not None
books = os.fstat(welcome.books)
tenant.say("status", welcome.status, "slot", welcome.slot, "books", books.st_size)
