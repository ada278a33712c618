"""Connector for Mooncake: the official wheel's client, embedded (it lends memory, or none) or as a dummy client of a mooncake_client.

docs/guide/connectors.md has the options.
"""

import os
import sys

# Last: this folder has the name of the library's package, which must be found first.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from client import Mooncake  # noqa: E402
from tiercel_connector import run  # noqa: E402

if __name__ == "__main__":
    run(Mooncake())
