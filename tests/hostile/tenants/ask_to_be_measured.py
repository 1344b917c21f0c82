"""HELLO, and to be measured, without any CUDA; then stays. ask_to_be_measured.py SECONDS"""

import sys
import time

import tenant

tenant.hello()
welcome = tenant.hello(flags=tenant.MEASURE)
tenant.say("answered" if welcome is not None else "hung up")
time.sleep(float(sys.argv[1]))
