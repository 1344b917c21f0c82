"""What the API server takes as names."""

import re
from typing import Final

LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){LABEL.pattern}(\.{LABEL.pattern})*")
DATA_KEY: Final = re.compile(r"(?!\.{1,2}$)[-._a-zA-Z0-9]{1,253}")
RULES: Final = {
    LABEL: "lower case letters, digits and '-', at most 63 of them",
    SUBDOMAIN: "lower case letters, digits, '-' and '.', at most 253 of them",
    DATA_KEY: "letters, digits, '-', '_' and '.', at most 253 of them",
}
