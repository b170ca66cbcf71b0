"""Run the table and print it: `python -m tests.model [--big] [--traces] [words of the rows' names]`."""

from __future__ import annotations

import argparse

from .explorer import Result
from .table import Row, describe, rows


def line(row: Row, result: Result) -> str:
    """A row of the table in `docs/testing.md`."""
    found = result.violation
    outcome = (
        f"{found.invariant} broken in {len(found.trace)} steps" if found else f"exhausted, depth {result.depth - 1}"
    )
    return f"| {row.configuration} | {row.name} | {outcome} | {result.states:,} | {result.seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Model-check the protocol.")
    parser.add_argument("--big", action="store_true", help="also the searches that take minutes")
    parser.add_argument("--traces", action="store_true", help="print the shortest way to each violation")
    parser.add_argument("words", nargs="*", help="only rows whose names or configurations contain one of these")
    arguments = parser.parse_args()
    print("| configuration | variant | result | states | CPU s |")
    print("|---|---|---|---|---|")
    states, reactions, seconds = 0, 0, 0.0
    for row in rows(big=arguments.big):
        text = f"{row.name} {row.configuration}".lower()
        if arguments.words and not any(word.lower() in text for word in arguments.words):
            continue
        result = row.run()
        states += result.states
        reactions += result.reactions
        seconds += result.seconds
        print(line(row, result), flush=True)
        if arguments.traces and result.violation:
            print(describe(result), flush=True)
    rate = states / max(seconds, 0.001)
    print(f"\n{states:,} states, {reactions:,} reactions, {seconds:.0f} s of processor time, {rate:,.0f} states/s")


if __name__ == "__main__":
    main()
