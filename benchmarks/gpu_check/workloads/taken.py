"""What is left of the limit once a context, a module and a first launch have taken theirs."""

import time

from driver import Driver
from say import say, shim_loaded

HELD_SECONDS = 2.5
"""The manager measures each second."""

if __name__ == "__main__":
    begun = time.monotonic()
    driver = Driver()
    free = {"context": driver.memory()[0]}
    started = time.monotonic() - begun
    spin = driver.function(driver.module(), "spin")
    free["module"] = driver.memory()[0]
    driver.spin(spin, 1000, driver.stream())
    driver.synchronize()
    free["first launch"] = driver.memory()[0]
    time.sleep(HELD_SECONDS)
    free["measured"], total = driver.memory()
    say(shim=shim_loaded(), total=total, free=free, started_s=started)
