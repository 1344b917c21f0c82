"""Which GPU this process sees first."""

from driver import Driver, Failed
from say import say

if __name__ == "__main__":
    try:
        driver = Driver()
    except (OSError, Failed) as error:
        say(error=str(error))
    else:
        say(uuid=driver.uuid(), total=driver.total())
