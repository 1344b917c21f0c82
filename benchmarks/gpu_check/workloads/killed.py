"""A process that holds memory is killed: how long until its memory is there again?"""

import subprocess
import sys
import time

from driver import Driver, Failed
from say import say, shim_loaded

HELD_PART = 0.4
PATIENCE = 10.0


def hold(size):
    driver = Driver()
    driver.allocate(int(size))
    print(driver.memory()[0], flush=True)
    time.sleep(600)


def main():
    driver = Driver()
    before, total = driver.memory()
    size = int(total * HELD_PART)
    command = [sys.executable, __file__, str(size)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if not holder.stdout.readline():
        raise SystemExit("the process that is to be killed could not take its memory")
    during = driver.memory()[0]
    begun = time.monotonic()
    holder.kill()
    holder.wait()
    while driver.memory()[0] < during + size and time.monotonic() < begun + PATIENCE:
        time.sleep(0.02)
    seconds, after = time.monotonic() - begun, driver.memory()[0]
    try:
        driver.free(driver.allocate(size))
        again = True
    except Failed:
        again = False
    free = {"before": before, "during": during, "after": after}
    say(shim=shim_loaded(), size=size, freed_s=seconds, again=again, **free)


if __name__ == "__main__":
    hold(*sys.argv[1:]) if sys.argv[1:] else main()
