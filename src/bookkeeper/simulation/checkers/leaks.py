"""When everything has been closed, nothing is left: no task, no connection, no listener."""

from __future__ import annotations

import asyncio

from ..history import Violation
from ..world.world import World


def check_leaks(world: World, machines: list[str]) -> None:
    """Call when the programs on these machines have ended in an orderly way, and some time has passed."""
    alive = {
        machine.incarnation.name
        for name, machine in world.machines.items()
        if name in machines and machine.incarnation is not None and machine.incarnation.alive
    }
    left = sorted(
        task.get_name()
        for task in asyncio.all_tasks(world.loop)
        if not task.done() and task.get_name().partition("/")[0] in alive
    )
    if left:
        raise Violation(f"tasks left behind: {', '.join(left[:10])}")
    open_ends = [
        f"{transport.owner.machine.name} to {transport.peer_machine}"
        for transport in world.connections()
        if transport.owner.alive and transport.owner.machine.name in machines
    ]
    if open_ends:
        raise Violation(f"connections left behind: {', '.join(open_ends[:10])}")
    listening = [
        f"{host}:{port}"
        for (host, port), listener in world.listeners.items()
        if listener.owner.alive and listener.owner.machine.name in machines
    ]
    if listening:
        raise Violation(f"still listening: {', '.join(listening)}")
