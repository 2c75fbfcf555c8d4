"""``python -m linkgauge`` is the program."""

import os
import subprocess
import sys

from ._program import find_program

program = find_program()
if os.name == "nt":
    sys.exit(subprocess.call([program, *sys.argv[1:]]))
os.execv(program, [program, *sys.argv[1:]])
