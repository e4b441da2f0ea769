# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random values as R or ranks raise documented exceptions only, and soon. Jobspecs: campaign/test_messages.py."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from shared import runs

from flux.resource import InfeasibleRequest, InsufficientResources, ResourcePool
from flux.scheduler.testing import jobspec, make_R


def one_of(values):
    """One of some values, not listed where hypothesis describes the strategy."""
    return st.integers(0, len(values) - 1).map(lambda n: values[n])


numbers = st.one_of(
    st.integers(-2, 5),
    one_of(
        [
            10**30, -(10**30), 2**31, 2**63, 2**64, 1 << 9000, 0.5, float("nan"), float("inf"), -0.0, 1e308,
        ]
    ),
)  # fmt: skip
texts = st.one_of(
    one_of(
        ["0", "0-3", "1-4294967295", "4294967296", "9" * 6000, "1-", "٣", "\x00", "a[0-1048576]", "n[", "é😀", "[" * 500,
         "2-8:2:*", "1+:999999999999:+", "2+:9:^", "1,3", "all", "^", "core", "slot", "node", "\ud800", " 1", "0-0", "gpu"]
    ),
    st.text(max_size=6),
)  # fmt: skip
leaves = st.one_of(st.none(), st.booleans(), numbers, texts)
anything = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


def maybe(strategy):
    """Mostly a valid value."""
    return st.one_of(strategy, strategy, strategy, anything)


BASE = make_R(3, 4, gpus=1, properties={"core": "1"})


def bounded(function, *args):
    """Call with random arguments: it raises documented exceptions only, and returns soon."""
    start = time.thread_time()
    try:
        return function(*args)
    except (ValueError, TypeError, InfeasibleRequest, InsufficientResources) as exc:
        # The text can be shown, with any characters in it.
        assert len(str(exc)) < 2000
        str(exc).encode("utf-8", "backslashreplace")
        assert not isinstance(exc, TypeError) or "expected R" in str(exc)
        return None
    finally:
        # Not a measurement: a call that takes this long does not end.
        assert time.thread_time() - start < 20


entries = st.fixed_dictionaries(
    {
        "rank": maybe(texts),
        "children": maybe(
            st.fixed_dictionaries({"core": maybe(texts)}, optional={"gpu": maybe(texts)})
        ),
    }
)
sets_R = st.fixed_dictionaries(
    {
        "version": st.sampled_from([1, 1, 1, 1, 2, None, True]),
        "execution": maybe(
            st.fixed_dictionaries(
                {"R_lite": maybe(st.lists(maybe(entries), max_size=3))},
                optional={
                    "nodelist": maybe(st.lists(texts, max_size=2)),
                    "properties": maybe(st.dictionaries(texts, texts, max_size=2)),
                    "starttime": maybe(numbers),
                    "expiration": maybe(numbers),
                    "nslots": maybe(numbers),
                },
            )
        ),
    },
    optional={"scheduling": anything},
)


@settings(max_examples=runs(120, 400))
@given(sets_R)
def test_R(R):
    made = bounded(ResourcePool, R)
    if made is not None:
        made._check()
        again = made.to_dict()
        assert ResourcePool(again).to_dict() == again
    pool = ResourcePool(BASE)
    request = pool.parse_resource_request(jobspec(slots=5))
    pool.alloc(1, request)
    state = pool.impl.pool_state.text()
    if bounded(pool.free, 1, R, True) is None and len(pool.job_end_times()):
        assert pool.impl.pool_state.text() == state
    before = pool.impl.pool_state.text()
    bounded(pool.register_alloc, 2, R)
    if len(pool.job_end_times()) < 2:
        assert pool.impl.pool_state.text() == before or 1 not in dict(pool.job_end_times())
    pool._check()


@given(anything, st.sampled_from(["mark_up", "mark_down", "remove_ranks"]))
def test_ids(ids, method):
    pool = ResourcePool(BASE)
    bounded(getattr(pool, method), ids)
    pool._check()


def test_many_ranks():
    """The most that R may name is still read in one go."""
    pool = ResourcePool(make_R(1 << 20, 1 << 16))
    assert pool.dumps() == "rank[0-1048575]/core[0-65535]"
    request = pool.parse_resource_request(jobspec(nodes=1000000, cores=65536))
    assert pool.alloc(1, request).dumps() == "rank[0-999999]/core[0-65535]"
