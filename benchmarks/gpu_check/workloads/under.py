"""Run a program under a tool: `under.py PATTERN COMMAND…`. Tells the tool's exit status, and what
PATTERN finds in its output, of which the program's own line is a part.
"""

import re
import subprocess
import sys

from say import say

if __name__ == "__main__":
    pattern, *command = sys.argv[1:]
    finished = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    )
    print(finished.stdout)
    last = " | ".join(line.strip() for line in finished.stdout.splitlines()[-3:])
    say(status=finished.returncode, found=re.findall(pattern, finished.stdout), last=last)
