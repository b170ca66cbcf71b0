"""A bound on log lines that clients can cause: `log.addFilter(LogRate())`.

Of the lines of one logger with one text (before its values are put in) only `LINES` pass in `WINDOW_SECONDS`; the
first of the next window says how many did not. Lines of level CRITICAL always pass.
"""

from __future__ import annotations

import logging

LINES = 10
WINDOW_SECONDS = 10.0

KINDS = 100
"""Kinds of lines that one filter knows; the texts stand in the program, so this is never reached."""


class LogRate(logging.Filter):
    """Lets so many lines of one kind pass."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[str, tuple[float, int]] = {}  # text -> when its window began, lines in it

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL:
            return True
        text = str(record.msg)
        began, lines = self._windows.get(text, (0.0, 0))
        if not began <= record.created < began + WINDOW_SECONDS:
            began, left_out, lines = record.created, max(0, lines - LINES), 0
            if left_out:
                record.msg = f"{text} (and {left_out} more lines like this before)"
        if text not in self._windows and len(self._windows) >= KINDS:
            self._windows.clear()
        self._windows[text] = (began, lines + 1)
        return lines < LINES
