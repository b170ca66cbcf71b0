"""What data is in a bookie's directories, and emptying them (spec bookie-storage §12.8, metadata §10.4).

All data of a configured directory lies in its `current`; other files in it (`lost+found`) are nobody's concern here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...runtime import Files
from ..file_names import current, needs_upgrade


def files_below(files: Files, path: str) -> Iterator[str]:
    """The paths of all files in a directory and those inside it, by name; none if there is no such directory."""
    if not files.is_dir(path):
        return
    for name in files.listdir(path):
        inside = f"{path}/{name}"
        if files.is_dir(inside):
            yield from files_below(files, inside)
        else:
            yield inside


def with_data(files: Files, roots: Sequence[str]) -> list[str]:
    """Those of the configured directories that hold any file of a bookie, of whatever version. Blocks."""
    return [root for root in roots if any(files_below(files, current(root))) or _is_old(files, root)]


def _is_old(files: Files, root: str) -> bool:
    return files.is_dir(root) and needs_upgrade(files.listdir(root))


def empty(files: Files, roots: Sequence[str]) -> None:
    """Remove the data in these directories, durably. Blocks. Raises `OSError`."""
    for root in roots:
        path = current(root)
        if files.is_dir(path):
            files.remove_tree(path)
            files.fsync_dir(root)
