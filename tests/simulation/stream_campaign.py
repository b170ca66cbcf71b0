"""Many stories of streams under faults: `make simulate-streams SEEDS=1000 FIRST=0`; `SEED=n` plays one.

Each seed is a story of its own, the hard one: of a stream (`stream_story`), or of Spark's sink (`sink_story`, `make
simulate-sinks`). What fails is printed with its seed; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import functools
import gc
import multiprocessing
import os
import sys
import time

from tests.simulation import sink_story, stream_story

STORIES = {"streams": stream_story.tell, "sinks": sink_story.tell}

RUNS_PER_PROCESS = 200
"""A process ends after so many, and takes with it what Python has not given back."""


def run(story: str, seed: int) -> tuple[int, str | None]:
    """The seed, and what went wrong."""
    try:
        STORIES[story](seed, hard=True)
    except Exception as error:
        return seed, f"{type(error).__name__}: {error}"
    finally:
        gc.collect()
    return seed, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--story", choices=STORIES, default="streams", help="of what")
    parser.add_argument("--seeds", type=int, default=1000, help="how many stories")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="play one, with its traceback")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        STORIES[arguments.story](arguments.seed, hard=True)
        print(f"seed {arguments.seed}: nothing is wrong")
        return 0
    started = time.monotonic()
    failures = 0
    play = functools.partial(run, arguments.story)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, maxtasksperchild=RUNS_PER_PROCESS) as pool:
        for count, (seed, failure) in enumerate(pool.imap_unordered(play, seeds), 1):
            if failure is not None:
                failures += 1
                print(f"seed {seed}: {failure}", flush=True)
            if count % 100 == 0 or count == len(seeds):
                rate = count / (time.monotonic() - started)
                print(f"{count:,} of {len(seeds):,} stories, {rate:.1f} a second, {failures} failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
