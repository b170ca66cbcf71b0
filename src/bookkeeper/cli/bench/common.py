"""What a measurement found, and how it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from ...runtime import Runtime
from ..latency import Histogram
from ..output import console, execute, human_bytes, print_json, print_table, progress_bar, remark
from ..session import Stop

SecondsOption = Annotated[float, typer.Option("--seconds", "-s", min=0.1, help="Measured time.")]


@dataclass
class Result:
    """What a run measured."""

    what: str
    size: int
    """Bytes of an entry, or a record."""
    entries: int = 0
    seconds: float = 0.0
    latency: Histogram = field(default_factory=Histogram)

    @property
    def rate(self) -> float:
        return self.entries / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "size": self.size,
            "entries": self.entries,
            "seconds": round(self.seconds, 3),
            "entries_per_second": round(self.rate),
            "bytes_per_second": round(self.rate * self.size),
            **self.latency.summary(),
        }

    def show(self) -> None:
        figures = self.latency.summary()
        print_table(
            None,
            ["", "entries", "entries/s", "payload/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms"],
            [
                (
                    self.what,
                    self.entries,
                    round(self.rate),
                    human_bytes(self.rate * self.size),
                    *(f"{figures[name]:.3f}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")),
                )
            ],
        )
        console.print("latency, log scale:")
        for row in self.latency.draw():
            console.print("  " + row, markup=False)


def report(result: Result, as_json: bool, stop: Stop, **more: object) -> int:
    """Show what was measured, be it cut short. Returns the exit code."""
    if stop.signal is not None:
        remark(f"interrupted: measured for {result.seconds:.1f} s")
    if as_json:
        print_json({**result.as_dict(), **more})
    else:
        result.show()
    return stop.exit_code


def run(main: Callable[[Runtime], Awaitable[int]]) -> None:
    code = execute(main)
    if code:
        raise typer.Exit(code)


async def all_done(runtime: Runtime, work: Iterable[Coroutine[Any, Any, None]], seconds: float, result: Result) -> None:
    """Wait for all, with a bar of about so many seconds; note how long it took."""
    started = runtime.now()
    with progress_bar() as progress:
        bar = progress.add_task(result.what, total=seconds)
        tasks = [asyncio.ensure_future(each) for each in work]
        together = asyncio.gather(*tasks)  # one to wait for: there may be thousands
        try:
            while not (await asyncio.wait([together], timeout=0.2))[0]:
                progress.update(bar, completed=runtime.now() - started)
            together.result()
        finally:
            for task in tasks:
                task.cancel()
    result.seconds = runtime.now() - started
