"""Many processes, each with a slot; all stay. many_processes.py PROCESSES SECONDS"""

import os
import sys
import time

import tenant

count, seconds = int(sys.argv[1]), float(sys.argv[2])
seated = 0
for _ in range(count):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            welcome = tenant.hello()
            status = welcome.status if welcome is not None else -1
        except OSError as error:
            status = -(error.errno or 1)
        os.write(writer, str(status).encode())
        os.close(writer)
        time.sleep(seconds)
        os._exit(0)
    os.close(writer)
    seated += os.read(reader, 16) == b"0"
    os.close(reader)
tenant.say("seated", seated)
time.sleep(seconds)
