"""One container as a real process: its own mount namespace, the host's files, what Allocate gave.

values      what to run: command, environment, devices, mounts
enter       the child: makes the namespace and what it sees, becomes the command
kernel      the few system calls Python does not have
process     the parent: starts, listens, waits, kills
"""
