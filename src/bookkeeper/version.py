"""What this program is called where it is installed, and which version it is.

The package index has another project under the name `bookkeeper`, so that the distribution has a longer name than the
import and the command, which are both `bookkeeper`.
"""

from __future__ import annotations

__version__ = "0.1.0"

DISTRIBUTION = "bookkeeper-ledger"
"""The name that pip knows."""


def install_hint(extra: str) -> str:
    """The command that adds an extra, such as `zookeeper`, to an installation."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
