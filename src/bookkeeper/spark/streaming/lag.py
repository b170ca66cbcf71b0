"""How far behind a query is (spec streams §17.7): Spark lets Python sources report no metrics, but two places.

A query's progress has the place that it has read to, and the ends that were seen last. How many records are between,
the namespace can count: it reads an entry at each end, and metadata between them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...errors import StreamNotFoundError
from ...streams.dlsn import DLSN
from ...streams.namespace import Namespace
from .offsets import STREAMS, Offset


async def records_behind(namespace: Namespace, progress: Mapping[str, Any]) -> dict[str, int]:
    """For each stream that a query reads, how many records it has not read yet; without streams that are gone.

    - `progress`: `query.lastProgress`, or `event.progress` of a `StreamingQueryListener`.

    Raises `OptionError` for offsets that are none of this source; those of other sources have another shape, and are
    left out.
    """
    found: dict[str, int] = {}
    for source in progress["sources"]:
        reached, tails = _offset(source["endOffset"]), _offset(source["latestOffset"])
        if reached is None or tails is None:
            continue
        for name, end in tails.places.items():
            start = reached.places.get(name)
            try:
                first = DLSN(*start.where) if start is not None else (await namespace.info(name)).segments[0].first
                found[name] = await namespace.count(name, first, DLSN(*end.where))
            except (StreamNotFoundError, IndexError):
                continue
    return found


def _offset(given: Any) -> Offset | None:
    value = json.loads(given) if isinstance(given, str) else given
    return Offset.from_json(value) if isinstance(value, dict) and STREAMS in value and "v" in value else None
