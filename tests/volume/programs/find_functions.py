"""Print in JSON which of the functions whose names are on standard input this library has."""

import ctypes
import json
import sys

library = ctypes.CDLL(sys.argv[1])
json.dump([name for name in json.load(sys.stdin) if hasattr(library, name)], sys.stdout)
