"""Bytes as BookKeeper's tools write them."""

from __future__ import annotations

UNITS = ("", "KB", "MB", "GB", "TB")


def size_text(size: int) -> str:
    """`1500(1.5KB)`: powers of 1000, three decimals at most, rounded down."""
    power = min((len(str(size)) - 1) // 3, len(UNITS) - 1)
    if not power:
        return str(size)
    whole, part = divmod(size * 1000 // 1000**power, 1000)
    decimals = f"{part:03d}".rstrip("0")
    return f"{size}({whole}{'.' if decimals else ''}{decimals}{UNITS[power]})"
