"""The two 8-bit maps as bitsandbytes' Python definition gives them.

    python tests/reference/dynamic_maps.py > tests/fixtures/optim/dynamic_maps.txt

A line for each code: the entry of the signed map (m), the entry of the unsigned
one (v), as hexadecimal floats. Made with bitsandbytes 0.50.2.
"""

import sys

import bitsandbytes
from bitsandbytes.functional import create_dynamic_map

print(f"bitsandbytes {bitsandbytes.__version__}", file=sys.stderr)
signed = create_dynamic_map(signed=True).tolist()
unsigned = create_dynamic_map(signed=False).tolist()
for m, v in zip(signed, unsigned, strict=True):
    print(m.hex(), v.hex())
