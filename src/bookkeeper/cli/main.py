"""Entry point of the `bookkeeper` command.

Nothing is imported here but the standard library, so that Ctrl-C is answered from the first moment on, imports
included.
"""

from __future__ import annotations

import os

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line. Ctrl-C ends it with exit code 130, and without a traceback."""
    try:
        from .app import app

        app(prog_name="bookkeeper")
    except KeyboardInterrupt:
        os._exit(EXIT_INTERRUPTED)  # half-imported modules are not asked to clean up
