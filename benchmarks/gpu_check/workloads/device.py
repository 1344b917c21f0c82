"""Which GPU this process sees first, and with `torch` as argument what PyTorch says of itself."""

import sys

from driver import Driver, Failed
from say import say


def seen_by_torch():
    import torch

    said = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if not torch.cuda.is_available():
        torch.cuda.init()  # says why not
    return said


if __name__ == "__main__":
    if sys.argv[1:] == ["torch"]:
        say(**seen_by_torch())
    else:
        try:
            driver = Driver()
        except (OSError, Failed) as error:
            say(error=str(error))
        else:
            say(uuid=driver.uuid(), total=driver.total())
