"""Seeded runs of a pair: random kills, freezes, cuts and heals of both nodes and central, with scripts on both.

After each run: nothing lost, each call that was executed twice is in an event log, epochs only grow and each has one
holder, both buffers are equal, and central's mirror equals the tracking tables. A seed replays the same steps.
"""

import asyncio
from random import Random

from support.pair_network import LINKS, LinkName
from support.pair_world import PairWorld

IN_FLIGHT = 5
"""The attempts that one machine makes at a time: one script, and the agent's limit for one target."""
EPOCHS = "SELECT name, value FROM facts WHERE name IN ('pair_held', 'pair_known')"
NAMED = "SELECT message_id FROM events WHERE kind IN ('duplicate', 'uncertain', 'late')"


class Storm:
    """One seeded run of this many steps, each followed by work for at most `step_s`."""

    def __init__(self, world: PairWorld, seed: int, steps: int, step_s: float) -> None:
        self.world = world
        self.seed = seed
        self.random = Random(seed)
        self.steps = steps
        self.step_s = step_s
        self.calls: list[str] = []
        self.frozen: set[int] = set()
        self.killed: set[int] = set()
        self.cut: set[LinkName] = set()
        self.is_central_down = False
        self.epochs: dict[int, set[int]] = {0: set(), 1: set()}
        self.twice_max = 0
        """How many calls may have been executed twice: in flight at the cuts, not copied, and in the window."""
        self._had_two = False
        self._delivered = 0

    async def run(self) -> None:
        for _ in range(self.steps):
            await self.step()
            until_at = asyncio.get_running_loop().time() + self.random.uniform(0.5, self.step_s)
            while asyncio.get_running_loop().time() < until_at:
                node = self.world.nodes[self.random.randrange(2)]
                # A frozen agent may hold the lock of the buffer: then the script's call is refused, and not issued.
                if (call_id := await self.world.try_issue(node)) is not None:
                    self.calls.append(call_id)
                self.world.target.is_down = self.random.random() < 0.3
                await self.observe()

    async def step(self) -> None:
        self.twice_max += 2 * IN_FLIGHT + sum(node.node.lag() for node in self.world.nodes)
        match self.random.choice(["kill", "freeze", "cut", "cut", "central", "heal"]):
            case "kill":
                number = self.random.randrange(2)
                if number not in self.frozen | self.killed:
                    await self.world.nodes[number].kill()
                    self.killed.add(number)
            case "freeze":
                number = self.random.randrange(2)
                if number not in self.frozen | self.killed:
                    self.world.nodes[number].freeze()
                    self.frozen.add(number)
            case "cut":
                link = self.random.choice(LINKS)
                self.world.network.cut(link)
                self.cut.add(link)
            case "central":
                if not self.is_central_down:
                    self.world.central.pause()
                    self.is_central_down = True
            case _:
                await self.heal()

    async def heal(self) -> None:
        self.world.network.heal()
        self.cut.clear()
        if self.is_central_down:
            self.world.central.resume()
            self.is_central_down = False
        for number in sorted(self.frozen):
            self.world.nodes[number].thaw()
        self.frozen.clear()
        for number in sorted(self.killed):
            await self.world.nodes[number].start()
        self.killed.clear()

    async def observe(self) -> None:
        """Epochs only grow and each belongs to the node of its parity; deliveries while both nodes execute count."""
        executing = 0
        for number, node in enumerate(self.world.nodes):
            found = dict(await asyncio.to_thread(node.node.rows, EPOCHS))
            held = int(found["pair_held"])  # type: ignore[call-overload]
            assert held % 2 == number
            assert held >= max(self.epochs[number], default=0)
            self.epochs[number].add(held)
            executing += number not in self.frozen | self.killed and await node.executes()
        delivered = self.world.target.delivered.total()
        if executing == 2 or self._had_two:
            self.twice_max += delivered - self._delivered
        self._had_two, self._delivered = executing == 2, delivered

    async def verify(self) -> None:
        """Heal everything and check the outcome."""
        await self.heal()
        self.world.target.is_down = False
        await self.world.leader()
        await self.world.settled(self.calls)
        twice = {one for one, count in self.world.target.delivered.items() if count > 1}
        assert set(self.world.target.delivered) >= set(self.calls), (self.seed, "lost")
        assert len(twice) <= self.twice_max, (self.seed, twice)
        named = {row for node in self.world.nodes for (row,) in node.node.rows(NAMED)}
        assert twice <= named, (self.seed, twice - named)


async def run_storm(world: PairWorld, seed: int, steps: int, step_s: float) -> None:
    storm = Storm(world, seed, steps, step_s)
    await storm.run()
    await storm.verify()
