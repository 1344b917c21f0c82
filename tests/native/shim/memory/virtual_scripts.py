"""What tests of virtual memory behind the shim have in common: sizes, and how scripts begin."""

PAGE = 2 << 20
LIMIT = 64 * PAGE
PRELUDE = "import os\nfrom tests.native.programs import virtual_client as vm\nP = vm.PAGE\n"
