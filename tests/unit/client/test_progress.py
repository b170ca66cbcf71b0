"""Whether it is the bookie that a request waits for (client.progress)."""

from __future__ import annotations

import math

from bookkeeper.client.wire.progress import Progress


def test_without_anything_moving_all_wait_for_the_bookie() -> None:
    progress = Progress()
    progress.look(0, 100, 0)
    assert progress.look(1, 100, 0) == math.inf
    assert progress.look(2, 100, 0) == math.inf


def test_what_is_still_leaving_us_does_not_wait_for_the_bookie() -> None:
    progress = Progress()
    assert progress.look(0, 1000, 800) == 0  # 1000 were handed over in tick 0
    assert progress.look(1, 1500, 900) == 0  # 500 more in tick 1; 600 have left
    assert progress.look(2, 1500, 500) == 0  # 1000: all of tick 0, only just
    assert progress.look(3, 1500, 100) == 1  # what was handed over in tick 1 and later
    assert progress.look(4, 1500, 0) == 1
    assert progress.look(5, 1500, 0) == math.inf


def test_what_does_not_move_in_our_buffer_waits_for_the_bookie() -> None:
    progress = Progress()
    assert progress.look(0, 1000, 800) == 0
    assert progress.look(1, 1000, 800) == math.inf
    assert progress.look(2, 2000, 1800) == math.inf  # more behind it


def test_an_answer_is_progress_for_all_that_was_handed_over_no_earlier() -> None:
    progress = Progress()
    progress.answered(5)
    progress.answered(3)
    progress.answered(4)
    assert progress.look(9, 0, 0) == 3
    assert progress.look(10, 0, 0) == math.inf


def test_a_long_answer_on_its_way_is_progress_for_all() -> None:
    progress = Progress()
    progress.heard = True
    assert progress.look(9, 0, 0) == -1
    progress.heard = progress.understood = True
    assert progress.look(10, 0, 0) == math.inf
    assert progress.look(11, 0, 0) == math.inf


def test_a_busy_writer_remembers_one_mark_a_tick_and_only_while_it_is_behind() -> None:
    progress = Progress()
    for tick in range(1000):
        progress.look(tick, 10 * tick + 10, 50)
    assert len(progress._marks) <= 6
    for tick in range(1000, 2000):
        progress.look(tick, 10_000, 50)  # nothing is handed over, nothing leaves
    assert len(progress._marks) <= 6
