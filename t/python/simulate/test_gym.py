"""`flux.simulate.gym`: it passes Gymnasium's checker, and its engine is that of a simulation."""

import concurrent.futures
import importlib.util
import pickle
import re

import pytest
from command_runner import TOP

gymnasium = pytest.importorskip("gymnasium")
np = pytest.importorskip("numpy")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from flux.simulate import Trace, simulate  # noqa: E402
from flux.simulate.gym import SchedulingEnv  # noqa: E402


def episode(env, choose, seed=3):
    """(sum of rewards, number of steps, last observation) of an episode."""
    seen, info = env.reset(seed=seed)
    total, count, over = 0.0, 0, False
    while not over:
        seen, reward, over, _, info = env.step(choose(seen, info))
        total, count = total + reward, count + 1
    return total, count, seen


def first_that_fits(seen, info):
    return int(info["mask"].argmax())


@pytest.mark.filterwarnings("ignore:.*not within the observation space.*")
def test_the_checker_of_gymnasium_is_content():
    check_env(SchedulingEnv("sample", jobs=40), skip_render_check=True)


def test_a_seed_is_an_episode():
    env, other = SchedulingEnv("sample", jobs=50), SchedulingEnv("sample", jobs=50)
    first = episode(env, first_that_fits)
    assert first[:2] == episode(other, first_that_fits)[:2] == episode(env, first_that_fits)[:2]
    assert first[0] != episode(env, first_that_fits, 4)[0]


def test_an_agent_that_always_waits_starts_all_jobs_all_the_same():
    env = SchedulingEnv("sample", jobs=50, reward=lambda wait, run, size: 1.0)
    assert episode(env, lambda seen, info: env.k)[0] == pytest.approx(-1.0)


def test_observations_are_of_the_first_jobs():
    env = SchedulingEnv(Trace("sample", jobs=200), jobs=None, k=4)
    seen, info = env.reset(seed=1)
    assert seen.shape == (4, 6) and seen[0].tolist()[:2] == [1.0, 1.0] and seen[0][5] == 1.0
    assert info["mask"].tolist() == [1, 0, 0, 0, 1] and info["time"] == 0.0
    assert env.step(0)[4]["time"] > 0.0
    env.close()


def test_an_episode_is_of_the_thread_that_began_it():
    env, other = SchedulingEnv("sample", jobs=50), SchedulingEnv("sample", jobs=50)
    env.reset(seed=1)
    env.step(0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        text = "the episode is another thread's: call reset()"
        assert pool.submit(env.step, 0).exception().args == (text,)
        there = pool.submit(episode, env, first_that_fits).result()
        assert there[:2] == episode(other, first_that_fits)[:2]
        pool.submit(env.reset, seed=1).result()
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(0)
        assert episode(env, first_that_fits)[:2] == episode(other, first_that_fits)[:2]
        pool.submit(env.reset).result()
    env.close()


JOB = {"submit": 0, "run": 10, "nodes": 3}
TABLES = {"resource": {"config": [{"hosts": "n[0-3]", "cores": "0"}]}}


@pytest.mark.parametrize(
    "trace, options, said",
    [
        ("sample", {"jobs": 1500, "part": (0.5, 1.0)}, r"jobs=1500: expected 1 to 1,000"),
        *(("sample", {"part": part}, f"part={re.escape(str(part))}: expected two fractions")
          for part in ((0, 2), (-1, 1), 0.5, (0, 0.5, 1))),
        ("sample", {"k": 0}, "k=0: expected an integer, 1 or more"),
        ("sample", {"k": None}, "k=None: expected an integer, 1 or more"),
        ("sample", {"k": 2.5}, "k=2.5: expected an integer"),
        *(("sample", {"jobs": jobs}, f"jobs={jobs!r}: expected an integer") for jobs in (2.5, "32")),
        (Trace([JOB, {**JOB, "urgency": 0}], nodes=4), {"jobs": 1}, "job 1: held"),
        ("sample", {"reward": "speed"}, "reward 'speed'"),
        (Trace([JOB], nodes=2), {"jobs": 1}, "job 0: unsatisfiable request: need 3"),
        (Trace([{**JOB, "gpus": 3}], nodes=3), {"jobs": 1}, "job 0: unsatisfiable request: .* too small"),
        (Trace([JOB], nodes=[4, 8]), {"jobs": 1}, "nodes: expected one value"),
        (
            Trace([JOB], config={**TABLES, "sched-limits": {"user": {}}}),
            {"jobs": 1},
            r"\[sched-limits\] of the configuration: expected resource.config only",
        ),
        (
            Trace([JOB], config={"resource": {**TABLES["resource"], "exclude": "0"}}),
            {"jobs": 1}, "resource.exclude of the configuration",
        ),
    ],
)  # fmt: skip
def test_options_that_make_no_environment(trace, options, said):
    with pytest.raises(ValueError, match=said):
        SchedulingEnv(trace, **options)


@pytest.mark.parametrize("action", [-1, 5, 0.5, "1", None])
def test_other_actions_are_errors(action):
    env = SchedulingEnv("sample", jobs=8, k=4)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="action .*: expected an integer from 0 to 4"):
        env.step(action)
    env.step(np.int64(4))


@pytest.mark.parametrize("cost", [float("nan"), "nan", None])
def test_a_reward_that_is_no_number(cost):
    env = SchedulingEnv("sample", jobs=8, reward=lambda wait, run, size: cost)
    said = f"the reward of wait=0, run=[0-9.]*, size=[0-9]*: {cost}"
    with pytest.raises(ValueError, match=said):
        episode(env, first_that_fits)


def test_an_environment_can_be_sent_to_a_process():
    env = SchedulingEnv("sample", jobs=8, reward="slowdown")
    assert episode(pickle.loads(pickle.dumps(env)), first_that_fits)[0] < 0


@pytest.fixture
def learned():
    path = TOP / "doc" / "examples" / "learned.py"
    spec = importlib.util.spec_from_file_location("learned", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_learns(learned, capsys):
    weights = learned.train(Trace("sample"), generations=1, population=3, best=1)
    assert len(weights) == 3 and "generation 1: mean bounded slowdown" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_a_learned_policy_is_a_rank_and_keeps_promises(learned, engine):
    policy = f"sched-backfill rank={learned.__file__}:rank promise=all"
    (mine,) = simulate(Trace("sample", jobs=200), policy, engine=engine)
    assert mine.failed is None and mine.figures["promised"] > 0
    assert mine.figures["promises_broken"] == 0
