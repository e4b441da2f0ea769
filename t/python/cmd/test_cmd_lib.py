"""What the commands are made of, tested without an instance."""

import os

import pytest

from flux_embedded.cmd.lib import bulkargs, directives, jobspec, times, values, watch
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import EventFormatter
from flux_embedded.cmd.lib.jobinfo import JobInfo
from flux_embedded.cmd.lib.outfmt import OutputFormat

HEADINGS = {"name": "NAME", "count": "COUNT", "time": "TIME", "note": "NOTE"}


def show(text, items, header=False):
    return OutputFormat(text, HEADINGS).lines(items, lambda item, name: item.get(name, ""), header)


class TestOutputFormat:
    def test_widths_and_headings(self):
        lines = show("{name:>6} {count:<5}|", [{"name": "a", "count": 3}], header=True)
        assert lines == ["  NAME COUNT|", "     a 3    |"]

    @pytest.mark.parametrize(
        "spec, value, expected",
        [
            ("{name:<4.4}|", "abcdef", "abcd|"),
            ("{name:<4.4+}|", "abcdef", "abc+|"),
            ("{name:<4.4+}|", "abcd", "abcd|"),
            ("{count:>4h}|", 0.0, "   -|"),
            ("{count:>4h}|", "", "   -|"),
            ("{count:>4h}|", 7, "   7|"),
            ("{time!F:>8h}", 0, "       -"),
            ("{time!F}", 1.02, "1.020s"),
            ("{time!H}", 90061, "1 day, 1:01:01"),
            ("{time!D}|", 0, "|"),
            ("{time!d:%Y-%m::>9}", 86400.0 * 40, "  1970-02"),
            ("{count:.2f}", 1.5, "1.50"),
            ("{note}", {"a": 1}, '{"a": 1}'),
        ],
    )
    def test_values(self, spec, value, expected):
        name = spec[1:].partition("}")[0].partition(":")[0].partition("!")[0]
        assert show(spec, [{name: value}]) == [expected]

    def test_an_empty_line_is_not_printed(self):
        assert show("{name} {note}", [{}, {"name": "x"}]) == ["x "]

    def test_column_that_is_empty_in_every_line_goes(self):
        text = "{name} ?:{note:>5} {count}"
        assert show(text, [{"name": "a", "count": 1}], header=True) == ["NAME COUNT", "a 1"]
        assert show(text, [{"name": "a", "count": 1, "note": "n"}, {"name": "b", "count": 2}]) == [
            "a     n 1",
            "b       2",
        ]

    def test_column_as_wide_as_its_longest_value(self):
        assert show("+:{name:>2}|", [{"name": "abc"}, {"name": "d"}], header=True) == [
            "NAME|",
            " abc|",
            "   d|",
        ]

    def test_sort(self):
        items = [{"name": "b", "count": 1}, {"name": "a", "count": 1}, {"name": "c", "count": 9}]
        assert show("sort:-count,name {name}", items) == ["c", "a", "b"]

    def test_unknown_field(self):
        with pytest.raises(CommandError, match="Unknown format field: nosuch"):
            OutputFormat("{nosuch}", HEADINGS)


class TestValues:
    @pytest.mark.parametrize(
        "text, seconds",
        [("5", 300), ("0.5", 30), ("30s", 30), ("1.5h", 5400), ("0", 0)],
    )
    def test_duration(self, text, seconds):
        assert values.duration(text) == seconds

    @pytest.mark.parametrize("text", ["inf", "infinity", "-5", "-1s", "foo", "nan"])
    def test_no_duration(self, text):
        with pytest.raises(CommandError, match="duration"):
            values.duration(text)

    @pytest.mark.parametrize(
        "text, expected",
        [
            ("a", ("a", 1)),
            ("a=3", ("a", 3)),
            ("a.b=x=y", ("a.b", "x=y")),
            ('a={"b":[1]}', ("a", {"b": [1]})),
            ("a=", ("a", "")),
        ],
    )
    def test_key_value(self, text, expected):
        assert values.key_value(text) == expected

    def test_key_value_from_a_file(self, tmp_path):
        (tmp_path / "v.json").write_text('{"x": 1}')
        assert values.key_value(f"^a.b={tmp_path}/v.json") == ("a.b", {"x": 1})

    def test_flags(self):
        assert values.flags(["debug,waitable", "novalidate"]) == 14
        with pytest.raises(CommandError, match="--flags: Unknown flag foo"):
            values.flags(["foo"])

    def test_environment_rules(self, tmp_path):
        source = {"A": "1", "AB": "2", "C": "3"}
        environment = lambda *rules: values.environment(rules, source)  # noqa: E731
        assert environment() == source
        assert environment("-A*") == {"C": "3"}
        assert environment("-*", "A*", "D=$C/${A}") == {"A": "1", "AB": "2", "D": "3/1"}
        assert environment("-/^A$/") == {"AB": "2", "C": "3"}
        (tmp_path / "rules").write_text("# all out\n-*\nX=1\n")
        assert environment(f"^{tmp_path}/rules") == {"X": "1"}
        assert environment("-*", "NOSUCH") == {}
        with pytest.raises(CommandError, match="Variable 'NOSUCH' not found in X=.NOSUCH"):
            environment("X=$NOSUCH")

    def test_rlimits(self):
        assert values.rlimits(["-*"]) == {}
        assert values.rlimits(["-*", "nofile=9"]) == {"nofile": 9}
        assert "memlock" not in values.rlimits([]) and "core" in values.rlimits([])
        with pytest.raises(CommandError, match="No such resource limit: foo"):
            values.rlimits(["foo=1"])

    def test_begin_time(self, monkeypatch):
        monkeypatch.setenv("TZ", "UTC")
        times.time.tzset()
        monkeypatch.setattr(values.time, "time", lambda: 1893499200.0 + 3600.5)  # 2030-01-01 13:00
        assert values.begin_time("+1h") == 1893499200.0 + 7200.5
        assert values.begin_time("2030-01-02 03:04:05") == 1893553445.0
        assert values.begin_time("2030-01-02T03:04") == 1893553440.0
        assert values.begin_time("2030-01-02") == 1893499200.0 + 3600 + 86400
        assert values.begin_time("tomorrow noon") == 1893499200.0 + 86400
        assert values.begin_time("3pm") == 1893499200.0 + 3 * 3600
        assert values.begin_time("in 10 minutes") == 1893499200.0 + 4200.5
        for bad in ("foo", "5", "+5x", "2030-13-01 25"):
            with pytest.raises(CommandError, match="Invalid datetime"):
                values.begin_time(bad)

    def test_dependency(self):
        assert values.dependency("afterok:f1?scope=user&x=1") == {
            "scheme": "afterok",
            "value": "f1",
            "scope": "user",
            "x": 1,
        }

    @pytest.mark.parametrize(
        "name, number", [("TERM", 15), ("sigusr1", 10), ("9", 9), ("FOO", None), ("0", None)]
    )
    def test_signal(self, name, number):
        assert values.signal_number(name) == number


class TestJobspec:
    def test_attributes(self):
        spec = jobspec.Jobspec(["x"], jobspec.per_task(None, 1, 1, None, False)[0], {"per_slot": 1})
        for key in ("a.b", "system.c", "user.d", ".e", "attributes.system.f"):
            spec.set_attribute(key, 1)
        assert spec.attributes == {
            "system": {"duration": 0, "a": {"b": 1}, "c": 1, "f": 1},
            "user": {"d": 1},
            "e": 1,
        }

    @pytest.mark.parametrize(
        "args, text",
        [
            ((2, 1, None, False), "cannot be less"),
            ((2, 3, None, False), "evenly divisible"),
            ((None, 3, 1, False), "node count"),
        ],
    )
    def test_per_resource_errors(self, args, text):
        with pytest.raises(CommandError, match=text):
            jobspec.per_resource(*args)

    def test_slot_label(self):
        resources = [
            {
                "type": "node",
                "count": 1,
                "with": [{"type": "slot", "count": 1, "label": "s1", "with": []}],
            }
        ]
        assert jobspec.slot_label(resources) == "s1" and jobspec.slot_label([]) is None


class TestBulkArguments:
    def rows(self, words):
        command, inputs = bulkargs.split(words.split())
        return command, bulkargs.combine(inputs)

    def test_combinations(self):
        assert self.rows("echo {} ::: a b ::: 1 2") == (
            ["echo", "{}"],
            [["a", "1"], ["a", "2"], ["b", "1"], ["b", "2"]],
        )

    def test_linked(self):
        assert self.rows("e ::: a b c :::+ 1 2")[1] == [["a", "1"], ["b", "2"], ["c", "1"]]

    def test_files(self, tmp_path):
        (tmp_path / "in").write_text("x y\nz\n")
        assert self.rows(f"e :::: {tmp_path}/in")[1] == [["x y"], ["z"]]

    def test_no_list_and_an_empty_one(self):
        assert bulkargs.split(["echo", "x"]) == (["echo", "x"], None)
        assert self.rows("e ::: a :::") == (["e"], [])

    @pytest.mark.parametrize(
        "text, expected",
        [
            ("{}", "d/a.txt"),
            ("{0}-{1}", "d/a.txt-b"),
            ("{0.%} {0./} {0./%} {0.//}", "d/a a.txt a d"),
            ("{.%}", "d/a"),
            ("{seq} {seq1}", "4 5"),
            ("{cc} {{id}}", "{cc} {{id}}"),
            ("{1.up}", "B"),
        ],
    )
    def test_fields(self, text, expected):
        assert bulkargs.Filler(["d/a.txt", "b"], 4, {"up": "x.upper()"})(text) == expected


class TestTimes:
    def test_event_formats(self):
        events = [
            {"timestamp": 59.5, "name": "a", "context": {"s": "x", "n": {"k": [1]}}},
            {"timestamp": 60.25, "name": "b"},
        ]
        raw = EventFormatter("text", "raw")
        assert [raw.format(e) for e in events] == ['59.500000 a s="x" n={"k":[1]}', "60.250000 b"]
        offset = EventFormatter("text", "offset")
        assert [offset.format(e) for e in events][1] == "0.750000 b"
        assert EventFormatter("json").format(events[1]) == '{"timestamp":60.25,"name":"b"}'
        assert times.iso_utc(1.9999999) == "1970-01-01T00:00:01.999999Z"

    def test_human_times_start_anew_with_the_minute(self, monkeypatch):
        monkeypatch.setenv("TZ", "UTC")
        times.time.tzset()
        clock = times.Clock("human")
        stamps = [clock.stamp(t) for t in (30.0, 31.5, 61.0, 61.25)]
        assert stamps == ["[Jan01 00:00]", "[  +1.500000]", "[Jan01 00:01]", "[  +0.250000]"]


class TestEnd:
    @pytest.mark.parametrize(
        "status, code, text",
        [
            (0, 0, None),
            (3 << 8, 3, "task(s) exited with exit code 3"),
            (142 << 8, 142, "task(s) Alarm clock"),
            (9, 137, "job shell Killed"),
            (255 << 8, 255, "task(s) exited with exit code 255"),
        ],
    )
    def test_wait_status(self, status, code, text):
        assert (watch.exit_code(status), watch.end_text(status)) == (code, text)


class TestJobInfo:
    def info(self, **job):
        return JobInfo({"id": 1234567890, "state": 8, "userid": os.getuid(), **job}, 1000.0)

    @pytest.mark.parametrize(
        "job, field, expected",
        [
            ({}, "state", "SCHED"),
            ({}, "status_abbrev", "S"),
            ({"state": 64, "result": 4}, "status_abbrev", "CA"),
            ({"state": 64, "result": 8}, "status", "TIMEOUT"),
            ({"urgency": 0}, "contextual_info", "held"),
            (
                {"state": 2, "dependencies": ["after-ok=1", "x"]},
                "contextual_info",
                "depends:after-ok=1,x",
            ),
            ({"annotations": {"sched": {"t_estimate": 4597.0}}}, "contextual_info", "eta:59.95m"),
            ({"annotations": {"sched": {"t_estimate": 900.0}}}, "contextual_info", "eta:now"),
            ({"state": 16, "t_run": 990.0, "nodelist": "n1"}, "contextual_info", "n1"),
            ({"state": 16, "t_run": 990.0}, "runtime", 10.0),
            ({"state": 64, "t_run": 990.0, "t_cleanup": 991.5}, "runtime", 1.5),
            ({"annotations": {"sched": {"a": {"b": 1}}}}, "annotations.sched.a.b", 1),
            ({"annotations": {"sched": {"a": {"b": 1}}}}, "sched.a", {"b": 1}),
            ({"annotations": {"sched": 5}}, "sched.a.b", ""),
            ({"state": 64, "result": 2, "waitstatus": 3 << 8}, "inactive_reason", "Exit 3"),
            (
                {"state": 64, "result": 4, "exception_type": "cancel", "exception_note": "why"},
                "inactive_reason",
                "Canceled: why",
            ),
            ({"state": 64, "result": 2, "waitstatus": 15}, "returncode", -15),
            (
                {"state": 64, "result": 2, "exception_occurred": True, "exception_severity": 0},
                "returncode",
                1,
            ),
            ({"state": 64, "result": 4}, "returncode", -128),
            ({"state": 8}, "exception.occurred", ""),
            ({"state": 8}, "duration", 0.0),
            ({"annotations": {"user": {"uri": "ssh://h/run/l"}}}, "uri.local", "local:///run/l"),
            ({}, "id.dec", "1234567890"),
        ],
    )
    def test_fields(self, job, field, expected):
        assert self.info(**job).get(field) == expected


class TestDirectives:
    """Options in a batch script (RFC 36)."""

    @pytest.mark.parametrize(
        "text, words",
        [
            ("#!/bin/sh\n#flux: -N2\n#flux: --job-name='a b' # x\nls\n", ["-N2", "--job-name=a b"]),
            ("#!/bin/sh\n#FLUX: -n2\n", ["-n2"]),
            ("-- flux: -n 3\n", ["-n", "3"]),
            ("# flux:\necho flux: -n2\n", []),
            ("#flux: --env=A='''\n#flux: x\n#flux: y'''\n", ["--env=A=x\ny"]),
            ('#flux: --setattr=a="""b "c" d"""\n', ['--setattr=a=b "c" d']),
        ],
    )
    def test_words(self, text, words):
        assert directives.parse(text) == words

    @pytest.mark.parametrize(
        "text, message",
        [
            ("#flux: -N2\n# FLUX: -n2\n", "line 2: sentinel changed"),
            ("#flux: -N2\ntrue\n#flux: -n2\n", "line 3: orphan 'flux:'"),
            ("#flux: foo\n", "line 1: Unknown directive"),
            ("#flux: -n2 'x\n", "line 1"),
            ('#flux: --env=A="""\ntrue\n', "line 2: unterminated"),
            ('#flux: --env=A="""\n', "line 1: unterminated"),
        ],
    )
    def test_wrong(self, text, message):
        with pytest.raises(ValueError, match=message):
            directives.parse(text)
