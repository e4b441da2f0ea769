# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises that are counted move to earlier times, one after another.

There are two ways to do that, with the same outcome: the one here, and the compiled one of
``compiled.py``, which is used where it was built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from flux.resource.plan.count_timeline import CountTimeline
from flux.resource.plan.promise import CountedPromise, length_of
from flux.resource.plan.settled import SettledPromises

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from flux.resource.plan.counted_profile import CountedProfile, UnitKind

#: Fewer promises are searched one by one: to remember what was found of them costs more.
FEW_PROMISES = 8


class PromiseMoves(ABC):
    """Moves promises, and changes the timelines that they are counted in with them.

    Args:
        promises (dict): job id to the promises, in the order in which they were made; one that moves
            is then the one that was made last
        profiles (dict): where these are counted, by the kind of units; they were made with this
            object

    Attributes:
        timeline (type): the class of the timelines that this works with
        per_turn (int): for how many jobs `advance_in_turn` takes no longer than a turn of a reactor
            should
    """

    timeline: Any
    per_turn: int

    def __init__(
        self, promises: dict[int, CountedPromise], profiles: dict[UnitKind, CountedProfile]
    ) -> None:
        self._promises = promises
        self._profiles = profiles

    @abstractmethod
    def watch(self, line: Any) -> Any:
        """Begin to have promises in a timeline.

        Returns:
            object: is told by ``opened(start, end, count)`` where so many units have just come free
        """

    @abstractmethod
    def unwatch(self, watch: Any) -> None:
        """There are no promises in a timeline any more."""

    @abstractmethod
    def enter(self, jobid: int, promise: CountedPromise) -> None:
        """A job has a promise, or another, that is counted now."""

    @abstractmethod
    def leave(self, jobid: int, profile: CountedProfile) -> None:
        """A job has no promise any more, or is about to have another."""

    @abstractmethod
    def advance(self, jobid: int, now: float) -> float:
        """Move the promise of a job to the earliest time at which it fits; it starts later than now.

        Returns:
            float: when it starts by now, in seconds since the epoch
        """

    @abstractmethod
    def advance_in_turn(
        self, jobids: Iterable[int], now: float
    ) -> tuple[int, list[tuple[int, float]]]:
        """Move the promises of several jobs; as `Strategy.advance_in_turn`."""


class PlainMoves(PromiseMoves):
    """In Python, with as few looks at promises as can be; see `SettledPromises`."""

    timeline = CountTimeline
    per_turn = 128

    def __init__(
        self, promises: dict[int, CountedPromise], profiles: dict[UnitKind, CountedProfile]
    ) -> None:
        super().__init__(promises, profiles)
        # Ids of jobs whose promises stay where they are until units come free near them.
        self._settled: set[int] = set()

    def watch(self, line: CountTimeline) -> SettledPromises:
        return SettledPromises(line, self._settled)

    def unwatch(self, watch: SettledPromises) -> None:
        pass

    def enter(self, jobid: int, promise: CountedPromise) -> None:
        pass

    def leave(self, jobid: int, profile: CountedProfile) -> None:
        profile.watch.gone(jobid)

    def advance(self, jobid: int, now: float) -> float:
        promises = self._promises
        promise = promises[jobid]
        start, length, count = promise.start, promise.end - promise.start, promise.demand.count
        profile = self._profiles[promise.demand.kind]
        watch = profile.watch
        few = profile.promises < FEW_PROMISES
        if few:
            earlier = profile.line.first(count + profile.kept, length, now, start)
        else:
            earlier = watch.earlier(jobid, count, profile.kept, length, start, now)
        if earlier < start:
            end = earlier + length_of(promise.request)
            free = profile.move(start, promise.end, earlier, end, count)
            if free < promise.end:
                watch.vacated(free, promise.end, count)
            del promises[jobid]
            promises[jobid] = CountedPromise(earlier, end, promise.request, promise.demand)
            start = earlier
        if few or profile.open_units:
            watch.gone(jobid)  # it might move, if units were not kept any more
        else:
            watch.settle(jobid, count, length, start, now)
        return start

    def advance_in_turn(
        self, jobids: Iterable[int], now: float
    ) -> tuple[int, list[tuple[int, float]]]:
        promises, profiles = self._promises, self._profiles
        settled: Container[int] = self._settled
        for profile in profiles.values():
            profile.watch.look_again(now)
            if profile.maybe_overdrawn or profile.open_units:
                settled = ()
        count = 0
        moved = []
        for jobid in jobids:
            if jobid not in settled:
                promise = promises.get(jobid)
                if promise is None or promise.is_open or promise.start <= now:
                    break
                if profiles[promise.demand.kind].maybe_overdrawn:
                    break
                start = self.advance(jobid, now)
                if start < promise.start:
                    moved.append((count, start))
                    if start <= now:
                        return count + 1, moved
            count += 1
        return count, moved
