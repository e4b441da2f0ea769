# SPDX-License-Identifier: LGPL-3.0-or-later
"""Mistakes in the classes of a site: misspelled overrides, accidental ones, a forgotten ``super()``, a
generator that is not iterated, calls that block the reactor."""

from __future__ import annotations

import dis
import inspect
import re
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

#: Names of the library's policies that a policy may override (doc/guide/overriding.rst).
OVERRIDABLE = frozenset({
    "schedule", "forecast", "order", "alloc", "free", "hello", "cancel", "prioritize", "expiration", "start", "start_schedule",
    "released", "ended", "rank", "candidate_rank", "predicted", "latest_start", "why", "resource_update", "stats_get", "feasibility_check",
    "refuse", "alloc_success", "alloc_deny", "alloc_cancel", "alloc_annotate",
    "queue_depth", "schedule_when_empty", "hello_partial_ok", "pool_class", "pool_kwargs", "predict", "reason_depth",
    "estimate_depth", "odds_depth", "keep_attributes", "jobspec_bytes", "jobspec_values", "SCHED_DELAY_MAX", "SCHED_EWMA_ALPHA",
})  # fmt: skip


#: Methods of the library's pools for a site to override, beside the public ones (doc/guide/pools.rst).
HOOKS = frozenset({"_sort_candidates", "_select_resources", "_check_feasibility"})
#: Methods of a policy or a pool that have to call the library's -> the consequence if they do not.
NEEDED = {
    "start": "no job is told that it starts",
    "alloc_success": "no job is told that it starts",
    "alloc_deny": "a job that is denied goes on waiting",
    "alloc_cancel": "a canceled job goes on waiting",
    "free": "resources stay allocated",
    "hello": "the resources of running jobs count as free",
    "register_alloc": "the resources of running jobs count as free",
    "cancel": "a canceled job goes on waiting",
    "prioritize": "priorities of waiting jobs stay as they are",
    "released": "a job may wait although it fits",
    "refuse": "the job goes on waiting",
    "expiration": "the request is not answered",
    "feasibility_check": "the request is not answered",
    "mark_down": "jobs start on ranks that are down",
    "mark_up": "ranks that come up stay down",
    "remove_ranks": "jobs start on ranks that have left",
    "update_expiration": "plans go by the former ends of jobs",
    "copy": "what is tried on a copy changes the pool itself",
}
#: Those for the jobs in the library's queue, which a policy with an alloc() may not use.
QUEUED = frozenset({"cancel", "prioritize"})
#: Names in such a method by which it does the library's work itself.
IN_PLACE = frozenset({
    "resources", "request", "pool_state", "respond", "respond_error", "give_up", "wake",
})  # fmt: skip
#: Calls in the text of a method that block the reactor.
BLOCKING = re.compile(r"\btime\.(sleep)\(|\.(rpc)\((?:[^()]|\([^()]*\))*\)\.get\(")
INSTEAD = {
    "sleep": "time.sleep() no message is answered: `yield` seconds in schedule(), or use call_at()",
    "rpc": "rpc().get() no message is answered: use rpc().then()",
}
#: Value of an attribute that the library's methods assign to ``self``.
ATTRIBUTE = object()


def _split(kind: type) -> tuple[list[type], list[type]]:
    """Return the bases of a class (itself included) from a site, and from the library."""
    bases: tuple[list[type], list[type]] = [], []
    for base in kind.__mro__:
        bases[is_ours(base)].append(base)
    return bases


def _methods(base: type) -> dict[str, types.FunctionType]:
    return {
        name: value for name, value in vars(base).items() if isinstance(value, types.FunctionType)
    }


def overridden(kind: type) -> Iterator[str]:
    """Yield a line for each public name of the library that a policy's class defines but must not,
    and the lines of `forgotten`.

    The names in the class are checked, and each attribute that its methods assign to ``self`` and
    the library defines or assigns as well.
    """
    theirs, ours = _split(kind)
    if not theirs:
        return  # a policy of the library: reading its 129 methods takes 16 ms
    kept = getattr(kind, "keep_attributes", ())
    if isinstance(kept, str):
        yield (f"{kind.__name__}.keep_attributes={kept!r}: expected names in a tuple: ({kept!r},)")
    yield from forgotten(kind)
    known: dict[str, tuple[type, object]] = {}
    for base in ours[:-1]:  # without `object`
        assigned = dict.fromkeys(_assigned(base), ATTRIBUTE)
        for name, value in {**assigned, **vars(base)}.items():
            known.setdefault(name, (base, value))
    for base in theirs:
        for name in dict.fromkeys([*vars(base), *_assigned(base)]):
            if name.startswith("_") or name in OVERRIDABLE or name not in known:
                continue
            where, value = known[name]
            if (
                name in vars(base)
                or value is ATTRIBUTE
                or isinstance(value, (types.FunctionType, property))
            ):
                yield (
                    f"{base.__name__}.{name} takes the place of {where.__name__}.{name}, which the library uses:"
                    " give it another name (what a policy may define: doc/guide/overriding)"
                )


def forgotten(kind: type) -> Iterator[str]:
    """Yield a line for each method of a policy or a pool that has to call the library's (`NEEDED`)
    and does nothing in its place."""
    theirs, ours = _split(kind)
    # released() of the base class does nothing
    known = {name for base in ours for name, one in _methods(base).items() if one.__code__.co_names}
    if any("alloc" in vars(base) for base in theirs):
        known -= QUEUED
    for base in theirs:
        methods = _methods(base)
        alloc = methods.get("alloc")
        if alloc is not None and "alloc_success" in known and _drops_request(alloc):
            yield f"{base.__name__}.alloc() does not use its request: the job is not answered"
        for name, consequence in NEEDED.items():
            if name in methods and name in known:
                if not ({name} | IN_PLACE) & {*_names(methods[name].__code__)}:
                    yield f"{base.__name__}.{name}() does not call super().{name}(): {consequence}"


def _drops_request(alloc: types.FunctionType) -> bool:
    """Whether a policy's ``alloc()`` does not use its first argument after ``self``, nor raises: the
    library denies the job then."""
    request = alloc.__code__.co_varnames[1:2]
    return not any(
        one.opname == "RAISE_VARARGS"
        or (one.opname != "MAKE_CELL" and {*request} & {*_variables(one)})
        for one in dis.get_instructions(alloc)
    )


def _variables(one: dis.Instruction) -> tuple[object, ...]:
    """Return the variables of an instruction; Python 3.13 loads two with one."""
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)


def _assigned(base: type) -> Iterator[str]:
    """Yield the names that a class's methods assign to their first arguments."""
    for function in _methods(base).values():
        first = function.__code__.co_varnames[:1]
        before: tuple[object, ...] = ()
        for one in dis.get_instructions(function):
            if one.opname == "STORE_ATTR" and before == first:
                yield one.argval
            before = _variables(one)[-1:]


def check_begun(made: object, attribute: str) -> None:
    """Raise RuntimeError if an object lacks an attribute that the library's ``__init__`` sets."""
    if not hasattr(made, attribute):
        kind = next(base for base in _split(type(made))[0] if "__init__" in vars(base))
        raise RuntimeError(f"{kind.__name__}.__init__() does not call super().__init__()")


def _dropped(function: types.FunctionType, names: set[str]) -> Iterator[str]:
    """Yield those of `names` that a function calls as methods without using the result."""
    called: object = None
    before = ""
    for one in dis.get_instructions(function):
        if one.opname in ("CACHE", "PRECALL"):
            continue
        if one.opname.startswith("LOAD_"):
            called = one.argval if one.opname.endswith(("ATTR", "METHOD")) else None
        elif not one.opname.startswith("CALL") or before.startswith("CALL"):
            if one.opname == "POP_TOP" and before.startswith("CALL") and called in names:
                yield str(called)
            called = None
        before = one.opname


def tell_mistakes(kind: type, log: Any, arguments: Iterable[str] = ()) -> None:
    """Log the mistakes in the class of a policy, which takes these module arguments, a rule or a
    pool."""
    for text in misspelled(kind, arguments):
        log.error(text)
    for text in _blocking(kind):
        log.warning(text)


def _blocking(kind: type) -> Iterator[str]:
    """Yield a line for each kind of call that blocks the reactor, in each method of a class that the
    library calls."""
    theirs, ours = _split(kind)
    called = {name for base in ours for name in vars(base)} - {"__init__"}
    for base in theirs:
        for name, function in sorted(_methods(base).items()):
            if name in called and {"sleep", "rpc"} & {*_names(function.__code__)}:
                with suppress(Exception):  # no source, or that of a newer version
                    for sleep, rpc in {*BLOCKING.findall(inspect.getsource(function))}:
                        yield f"{base.__name__}.{name}(): during {INSTEAD[sleep or rpc]}"


def misspelled(kind: type, arguments: Iterable[str] = ()) -> Iterator[str]:
    """Yield a line for each method or attribute of a policy's, a rule's or a pool's class that looks
    like a misspelled override of the library's, takes the place of a module argument, drops a
    generator of the library, or is itself a generator or a coroutine where the library calls a
    function. Names used in the class itself and extensions of a name (``allocate``) are left out."""
    theirs, ours = _split(kind)
    if not theirs:
        return
    known = {
        name: one
        for base in ours
        for name, one in _methods(base).items()
        if name in HOOKS or not name.startswith("_")
    }
    attributes = {name for base in ours for name in _attributes(base)}
    generators = {"reasons"} | {
        name
        for base in ours
        for name, one in _methods(base).items()
        if name in known and _is_generator(one)
    }
    steps = generators | {"schedule", "forecast", "_sort_candidates"}
    # A pool's methods are called with and without their optional arguments.
    all_given = "register_alloc" not in known
    used = {
        name for base in theirs for one in _methods(base).values() for name in _names(one.__code__)
    }
    for base in theirs:
        functions, values, of = _methods(base), _attributes(base), base.__name__
        for name, function in functions.items():
            if inspect.iscoroutinefunction(function) and name in known:
                yield f"{of}.{name}() is never run: write `def` in place of `async def`"
            elif inspect.isgeneratorfunction(function) and name in known.keys() - steps:
                yield f"{of}.{name}() is never run: a `yield` makes it a generator"
            elif name in known and (why := _cannot_take(function, known[name], all_given)):
                yield f"{of}.{name}() cannot be called as the library's is: {why}"
            elif name in attributes:
                yield f"{of}.{name}() takes the place of the attribute {name}"
            for dropped in _dropped(function, generators):
                yield (
                    f"{of}.{name}() does nothing by {dropped}(), a generator: return it, or write"
                    f" `yield from self.{dropped}()`"
                )
        for name in values & known.keys():
            yield f"{of}.{name}={vars(base)[name]!r} takes the place of the method {name}()"
        passed = {
            name for name in values - attributes - used if name.replace("_", "-") in arguments
        }
        for name in sorted(passed):
            yield (
                f"{of}.{name} is never used: pass it on as an argument,"
                f" super().__init__(h, '{name}={vars(base)[name]}', *args)"
            )
        for name in sorted(functions.keys() - known.keys() - used):
            meant = _nearest(name, [one for one in known if name[0] != "_" or one[0] == "_"])
            if meant is not None:
                yield f"{of}.{name}() is never called: is {meant}() meant?"
        for name in sorted(values - attributes - used - passed):
            meant = _nearest(name, attributes)
            if meant is not None:
                yield f"{of}.{name} is never used: is {meant} meant?"


def _cannot_take(
    function: types.FunctionType, ours: types.FunctionType, all_given: bool
) -> str | None:
    """Return why an override cannot take the arguments that the library's method requires, or, if
    `all_given`, all that it takes; None if it can."""
    positional, more = [], {}
    for one in inspect.signature(ours).parameters.values():
        if one.kind is one.VAR_KEYWORD and all_given:
            more[one.name] = one
        elif one.kind is one.POSITIONAL_OR_KEYWORD and (all_given or one.default is one.empty):
            positional.append(one)
    try:
        inspect.signature(function).bind(*positional, **more)
    except TypeError as exc:
        return str(exc)
    return None


def _is_generator(function: types.FunctionType) -> bool:
    """Whether a function is a generator, or returns one of another function."""
    returns = str(function.__annotations__.get("return"))
    return inspect.isgeneratorfunction(function) or returns.startswith(("Iterator", "Iterable"))


def _attributes(base: type) -> set[str]:
    """Return the public attributes of a class that are data, and a pool's ``_impl_map``."""
    return {
        name
        for name, value in vars(base).items()
        if (not name.startswith("_") or name == "_impl_map")
        and not callable(value)
        and not hasattr(value, "__get__")
    }


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function uses, with those of its comprehensions and lambdas."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names(one)


def mentions(kind: type, name: str) -> bool:
    """Whether a method of a site's class uses a name."""
    return any(
        name in _names(method.__code__)
        for base in _split(kind)[0]
        for method in _methods(base).values()
    )


def is_ours(base: type) -> bool:
    """Whether a class belongs to the library."""
    return base is object or base.__module__.partition(".")[0] == "flux"


def _nearest(name: str, known: Iterable[str]) -> str | None:
    near = [
        # Two letters of a short name in the wrong order make it little like the name.
        (sorted(name) == sorted(one) or SequenceMatcher(None, name, one).ratio(), one)
        for one in known
        if (one not in name and name not in one) or abs(len(one) - len(name)) == 1
    ]
    likeness, found = max(near, default=(0.0, ""))
    return found if likeness > 0.85 else None
