# SPDX-License-Identifier: LGPL-3.0-or-later
"""Readers of traces: accepted jobs, jobs left out with their reasons, and damaged files."""

import bz2
import gzip
import json
import lzma
import math
import os
import random
import sqlite3
import tarfile
from pathlib import Path

import pytest
from shared import data_path

from flux.resource.pool.amount_kinds import read_amount
from flux.scheduler.testing import jobspec, make_R
from flux.simulate import OptionError, Trace
from flux.simulate.workload import columns, lublin
from flux.simulate.workload.formats import detect, reader
from flux.simulate.workload.record import Source, TraceError

HEADER = "; Version: 2.2\n; UnixStartTime: 1000000000\n; MaxProcs: 64\n; MaxNodes: 32\n; Queue: 1 long (72 h)\n"


def swf(*rows, header=HEADER):
    return header + "".join(" ".join(map(str, row)) + "\n" for row in rows)


def row(
    number=1, submit=0, run=10, size=2, limit=20, status=1, wait=0, requested=None,
    memory=-1, user=7, queue=1, before=-1,
):  # fmt: skip
    asked = size if requested is None else requested
    first = [number, submit, wait, run, size, -1, -1, asked, limit, memory]
    return [*first, status, user, -1, -1, queue, -1, before, -1]


def write(tmp_path, text, name="trace.swf", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return str(path)


def read(path, form="auto"):
    source = Source(path)
    return list(reader(source, form)), source


def fields(one, names):
    return [getattr(one, name) for name in names.split()]


def all_fields(jobs):
    return [fields(job, " ".join(job.__slots__)) for job in jobs]


def notes(of):
    """The notes of a source or a workload."""
    return "\n".join(of.notes.lines())


def refusal(path, form="auto"):
    with pytest.raises(TraceError) as caught:
        read(path, form)
    return str(caught.value).replace(path, "FILE")


# -- SWF ------------------------------------------------------------------------------------------------------


def test_swf(tmp_path):
    records, source = read(write(tmp_path, swf(row(), row(2, 5, 11.5, 4, -1))))
    first, second = records
    assert fields(first, "id submit run limit request") == ["1", 1e9, 10, 20, (None, 2, 0)]
    assert (first.user, first.queue, first.extra, first.wait) == ("7", "long", None, 0)
    assert (second.run, second.limit) == (11.5, None)
    assert (source.start, source.procs, source.nodes) == (1e9, 64, 32)


def test_swf_takes_the_request_else_the_allocation(tmp_path):
    sizes = ((4, 8), (4, -1), (-1, 8))
    text = swf(*(row(size=size, requested=asked) for size, asked in sizes))
    records, source = read(write(tmp_path, text))
    assert [record.request[1] for record in records] == [8, 4, 8]
    assert "another number of processors" in notes(source)


@pytest.mark.parametrize(
    "job, said",
    [
        (row(run=-1), "1 job left out: no run time (first: line 6)"),
        (row(run=-1, status=5), "1 job left out: no run time (cancelled before they ran)"),
        (row(size=-1), "1 job left out: no size"),
        (row(status=2), "1 line about parts of preempted jobs left out"),
    ],
)
def test_swf_tells_the_jobs_left_out(tmp_path, job, said):
    records, source = read(write(tmp_path, swf(job, row(2))))
    assert [record.id for record in records] == ["2"]
    assert any(line.startswith(said) for line in source.notes.lines())


def test_swf_in_the_wild(tmp_path):
    text = swf(row() + ["{1,2,3}", "q_2w", "1:ppn=12"]).replace(" ", "\t") + "\n\n"
    text = "; Note: Universit\u00e4t\n" + text
    records, source = read(write(tmp_path, text, encoding="latin-1"))
    assert len(records) == 1
    assert "more than 18 columns" in notes(source)
    ((record,), source) = read(write(tmp_path, swf(row(limit="1e308"))))
    assert record.limit is None
    assert "1 job has a limit of more than a thousand years" in notes(source)


@pytest.mark.parametrize(
    "text, said",
    [
        (swf(row(), row(2)[:17]), "FILE:7: 17 columns: a record of this format has 18 or more"),
        (swf(row()[:17], header=""), "FILE:1: 17 columns: a record of this format has 18 or more; column 18 (think time)"),
        (swf(row()[:16], header=""), "FILE:1: 16 columns: a record of this format has 18 or more; columns 17 to 18 (prec"),
        (HEADER, "FILE: there is no job in it: nothing but a header or comments"),
        (swf(row(run="1e308")), "FILE: job 1: its run time of 1e+308 s is more than a thousand years"),
        (swf(row(submit="1e20")), "FILE: job 1: its submit time of 1e+20 s is more than a thousand years"),
        (swf(row(size="1e30")), "FILE: job 1: its size is more than any machine has"),
        (swf(row(), row(2, run="nan")), "FILE:7: column 4 is nan, not a number"),
        (swf(row(), row(2, submit="inf")), "FILE:7: column 2 is inf, not a number"),
        (swf(row(), row(2, run="ten")), "FILE:7: column 4 is 'ten', not a number"),
        (swf(row(), row(2, submit=-5)), "FILE:7: the job is submitted at -5"),
    ],
)  # fmt: skip
def test_damaged_swf(tmp_path, text, said):
    assert refusal(write(tmp_path, text)).startswith(said)


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_a_compressed_trace(tmp_path, module):
    packed = module.compress(swf(*[row(n, n) for n in range(1, 2000)]).encode())
    records, _ = read(write(tmp_path, packed, "trace.swf.gz"))
    assert len(records) == 1999
    cut = refusal(write(tmp_path, packed[: len(packed) // 2], "cut.swf.gz"))
    assert "the compressed file ends here, before its end" in cut and cut.split(":")[1].isdigit()
    cut = refusal(write(tmp_path, packed[:30], "cut.swf.gz"))
    assert cut == "FILE:1: the compressed file ends here, before its end"
    broken = bytearray(packed)
    broken[-8:-4] = b"\xff" * 4  # its checksum
    said = refusal(write(tmp_path, bytes(broken), "broken.swf.gz"))
    assert "damaged" in said or said == "FILE: Invalid data stream"


@pytest.mark.parametrize(
    "text, said",
    [
        (b"\x28\xb5\x2f\xfd rest", "FILE: compressed by zstd, which is not read: unpack it with unzstd"),
        (b"PK\3\4 rest", "FILE: a zip archive, which is not read: unpack it with unzip"),
        (swf(row()).encode("utf-16"), "FILE: text in UTF-16, which is not read: convert it with iconv"),
    ],
)  # fmt: skip
def test_a_file_of_another_format_is_named(tmp_path, text, said):
    assert refusal(write(tmp_path, text)).startswith(said)


def test_no_file_and_no_format(tmp_path):
    assert refusal(str(tmp_path / "none")) == "FILE: there is no such file"
    for text, said in (
        ("hello\nworld\n", "none of the formats known"),
        ("", "none of the formats known"),
        ("", "the file is empty"),
        (bytes(range(256)) * 20, "binary data"),
    ):
        assert said in refusal(write(tmp_path, text))
    os.mkfifo(tmp_path / "pipe")
    assert refusal(str(tmp_path / "pipe")).startswith("FILE: neither a file nor a directory")


@pytest.mark.parametrize("form", ["auto", "swf", "sacct", "flux", "batsim", "csv", "accounting"])
def test_files_that_are_no_trace(tmp_path, form):
    chance = random.Random(form)
    files = [
        b"\x7fELF" + chance.randbytes(3000), b"[1, 2, 3]", b'{"jobs": [1, null], "profiles": {}}',
        b'{"jobs": {"a": 1}, "profiles": []}', b"[" * 100_000, b'a,b"c\n"' * 1000, "Schl\u00fcssel\n".encode("utf-16"),
    ]  # fmt: skip
    for data in files:
        refusal(write(tmp_path, data), form)  # a TraceError, whatever it is


# -- tables ---------------------------------------------------------------------------------------------------

SACCT = (
    "JobID|JobIDRaw|User|Partition|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|ReqTRES|State\n"
    "10|10|ann|batch|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T10:06:00|2024-03-01T10:07:00|60|5|2|8|billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,node=2|COMPLETED\n"
    "10.batch|10.batch||||||||||||COMPLETED\n"
    "11_7|12|bob|batch|2024-03-01T10:01:00|2024-03-01T10:01:00|2024-03-01T10:06:00|2024-03-01T10:07:00|90|UNLIMITED|1|4|cpu=4,node=1|TIMEOUT\n"
    "11_[8-99%4]|13|bob|batch|2024-03-01T10:01:00|Unknown|Unknown|Unknown|0|5|1|4|cpu=4|PENDING\n"
    "14|14|eve|batch|2024-03-01T10:02:00|2024-03-01T10:02:00|None|2024-03-01T10:03:00|0|5|1|4|cpu=4,node=1|CANCELLED by 12\n"
)


def test_sacct(tmp_path):
    path = write(tmp_path, SACCT, "jobs.txt")
    records, source = read(path)
    assert detect(Source(path)) == "sacct"
    first, second = records
    assert fields(first, "id run limit request") == ["10", 60, 300, (2, 8, 4)]
    assert (first.user, first.queue) == ("ann", "batch")
    assert second.submit - first.submit == -240  # the first comes in when it was eligible
    assert first.wait == 60
    assert (second.id, second.limit) == ("12", None)
    for part in (
        "1 job could not have started", "1 line about job steps", "rest of a job array", "cancelled before they ran",
        "1 job has no limit of their own",
    ):  # fmt: skip
        assert part in notes(source)


@pytest.mark.parametrize("text", [swf(row()), SACCT, '{"id": 1, "t_submit": 1.0}'])
def test_a_byte_order_mark(tmp_path, text):
    form, marked = (detect(Source(write(tmp_path, mark + text))) for mark in ("", "\ufeff"))
    assert form == marked
    if form != "flux":
        marked, plain = (read(write(tmp_path, mark + text))[0] for mark in ("\ufeff", ""))
        assert all_fields(marked) == all_fields(plain)


def test_tables_without_a_column_or_bars(tmp_path):
    said = refusal(write(tmp_path, "id,submit,run\n1,0,5\n", "jobs.csv"))
    assert said.startswith("FILE:1: no column for the size (any of nnodes, ")
    text = " JobID  AllocCPUS  State\n------ ------ ----\n1  8  COMPLETED\n"
    said = "FILE:1: columns are separated by neither commas, bars nor tabs: sacct -P writes bars"
    assert refusal(write(tmp_path, text)) == said
    assert refusal(write(tmp_path, "id;submit;run;limit;nodes\n1;0,5;10;20;1\n")) == said


def test_components_of_heterogeneous_jobs(tmp_path):
    _, source = read(write(tmp_path, SACCT.replace("\n11_7|", "\n11+1|")))
    said = "1 job comes from heterogeneous ones: components start independently (first: line 4)"
    assert said in source.notes.lines()


def test_steps_of_sacct_by_raw_ids_only(tmp_path):
    """As without -X."""
    lines = [line.partition("|")[2] for line in SACCT.splitlines()]
    lines.append(lines[1].replace("10|", "10.0|", 1))
    records, _ = read(write(tmp_path, "\n".join(lines), "jobs.txt"))
    assert [record.id for record in records] == ["10", "12"]


def test_sacct_without_header_and_with_a_bad_line(tmp_path):
    header, _, body = SACCT.partition("\n")
    assert "no column for the" in refusal(write(tmp_path, body), "sacct")
    short = write(tmp_path, header + "\n1|2|3\n")
    assert "FILE:2: 3 fields under 14 columns" in refusal(short)
    bad = SACCT.replace("2024-03-01T10:00:00|2024-03-01T10:05:00", "yesterday|Unknown")
    assert refusal(write(tmp_path, bad)) == "FILE:2: 'yesterday' is not a time"


def test_csv_of_flux_fiction(tmp_path):
    text = "# made by hand\nJobID,NNodes,NCPUS,Timelimit,Submit,Elapsed,NGPUS\n1,2,5,01:30:00,2018-09-28T10:32:04,00:09:47,3\n1,4,2,1-00:00:00,2018-09-28T10:32:04,09:47,0\n"
    records, source = read(write(tmp_path, text, "a.csv"))
    found = [fields(one, "request limit run") for one in records]
    assert found == [[(2, 5, 3), 5400, 587], [(4, 4, 0), 86400, 587]]
    assert "fewer cores than nodes" in notes(source) and "do not divide" in notes(source)


PLAIN = "id,submit,run,limit,nodes\n"


def test_the_page_names_all_columns_and_shows_a_table(tmp_path):
    """doc/guide/comparing.rst has each name of a column that the reader looks for, and a table that it reads."""
    page = (Path(__file__).parents[3] / "doc/guide/comparing.rst").read_text()
    page = page[page.index("Columns of a table\n---") : page.index("What the figures mean\n---")]
    table = page.split(".. code-block:: text\n\n")[1].split("\n\n")[0]
    path = tmp_path / "jobs.csv"
    path.write_text("".join(line.strip() + "\n" for line in table.splitlines()))
    first, second = reader(Source(str(path)))
    assert (first.run, first.limit, first.request[0], first.user) == (3600, 7200, 4, "ada")
    assert (second.run, second.limit, second.request[2], second.queue) == (5400, 7200, 2, "gpu")
    assert {name for name in columns.KNOWN if f"``{name}``" not in page} == set()


def test_columns_that_are_not_read_are_told(tmp_path):
    table = "id,submit,run,nodes,Walltime,gpu\n1,0,1e-5,1,60,0\n"
    (job,), source = read(write(tmp_path, table, "jobs.csv"))
    assert job.run == 1e-5  # as pandas writes it
    assert source.notes.warnings == ["the column gpu is not read: is gpus meant?"]
    assert source.notes.facts[1:] == ["columns not read: walltime, gpu"]


@pytest.mark.parametrize(
    "first, second, kind",
    [
        ("5", "2024-01-01T00:00:00", "seconds"),
        ("2024-01-01T00:00:00", "5", "dates without a zone"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00", "dates with a zone"),
        ("2024-01-01T00:00:00", "2024-01-01T00:00:00+01:00", "dates without a zone"),
    ],
)
def test_mixed_kinds_of_dates(tmp_path, first, second, kind):
    text = f"{PLAIN}1,{first},5,9,1\n2,{second},5,9,1\n"
    said = refusal(write(tmp_path, text, "jobs.csv"))
    assert said.startswith(f"FILE:3: '{second}': times of the column submit above are {kind}")


def test_mixed_kinds_of_traces(tmp_path):
    dated, plain = write(tmp_path, swf(row())), write(tmp_path, swf(row(), header=""), "plain.swf")
    with pytest.raises(TraceError, match="mixed kinds have no order"):
        Trace(dated, plain).workload()
    assert len(Trace(dated, dated).workload().jobs) == 2


def test_numbers_that_are_not_whole(tmp_path):
    """A part of a node or GPU is one; an urgency is not rounded."""
    head = "id,submit,run,limit,nodes,gpus,urgency\n"
    records, source = read(write(tmp_path, head + "1,0,5,9,1.5K,0.5,16.0\n", "jobs.csv"))
    assert [(one.request, one.urgency) for one in records] == [((1536, None, 1), 16)]
    assert "1 job has a size that is not whole: rounded up" in notes(source)
    said = refusal(write(tmp_path, head + "1,0,5,9,1,0,16.5\n", "jobs.csv"))
    assert said == "FILE:2: urgency 16.5: expected a whole number"
    records, source = read(write(tmp_path, PLAIN + "1,0,5,9,1.5\n2,0,5,9,2.0\n", "jobs.csv"))
    assert [record.request[0] for record in records] == [2, 2]
    assert "1 job has a size that is not whole: rounded up" in notes(source)
    _, source = read(write(tmp_path, swf(row(size=1.5))))
    assert "not whole: rounded up" in notes(source)


@pytest.mark.parametrize(
    "text, value",
    [
        ("00:10", 10), ("01:02:03", 3723), ("1-00:00:00", 86400), ("2:00:00:01", 172801), ("1-12", 129600),
        ("00:00:01.5", 1.5), ("90", 90), ("1:00", 60), ("1h", 3600), ("1.5d", 129600), ("90s", 90),
    ],
)  # fmt: skip
def test_durations(text, value):
    assert columns.seconds(text) == value


@pytest.mark.parametrize(
    "text", ["", "a:b", "x-1", "-5", "1:2:3:4:5", "nan", "::", "h", "-1h", "1w"]
)
def test_no_durations(text):
    with pytest.raises(ValueError, match="is not a duration"):
        columns.seconds(text)


@pytest.mark.parametrize("minutes", ["-5", "nan", "x"])
def test_no_minutes(minutes, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"submit,run,nodes,timelimitraw\n0,10,1,{minutes}\n")
    with pytest.raises(ValueError, match=f"jobs.csv:2: '{minutes}' is not a number of minutes"):
        Trace(str(trace)).workload()


# -- Flux -----------------------------------------------------------------------------------------------------


def listed(**keys):
    job = {"id": 1, "userid": 5, "nnodes": 2, "ncores": 8, "duration": 60.0, "state": 64}
    job.update({"t_submit": 100.0, "t_sched": 101.0, "t_run": 150.0, "t_cleanup": 170.0}, **keys)
    return {key: value for key, value in job.items() if value is not None}


def test_flux_jobs(tmp_path):
    jobs = [listed(), listed(id=2, t_run=None, t_cleanup=None), listed(id=3, t_cleanup=None)]
    records, source = read(write(tmp_path, json.dumps({"jobs": jobs}), "jobs.json"))
    (record,) = records
    assert fields(record, "submit run limit request") == [101, 20, 60, (2, 8, 0)]
    for part in ("never ran", "have not ended", "allocations are taken"):
        assert part in notes(source)
    lines, _ = read(write(tmp_path, "\n".join(map(json.dumps, jobs)), "jobs.jsonl"))
    assert all_fields(lines) == all_fields(records)


def test_flux_jobs_damaged(tmp_path):
    text = json.dumps(listed()) + "\n{broken\n"
    assert "FILE:2: not JSON" in refusal(write(tmp_path, text, "jobs.jsonl"))
    assert "no t_submit" in refusal(write(tmp_path, '{"jobs": [{"id": 1}]}', "jobs.json"))


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"t_run": -5}, "t_run is -5"),
        ({"duration": "60"}, "duration is '60'"),
        ({"nnodes": -2}, "nodes -2: expected a count"),
        ({"ncores": 1.5}, "cores 1.5: expected a count"),
        ({"ngpus": "x"}, "GPUs 'x': expected a count"),
        ({"urgency": 99}, "urgency 99: 0 to 31 is possible"),
        ({"urgency": "16"}, "urgency '16': 0 to 31 is possible"),
        ({"queue": ["a"]}, "['a']: expected the name of a queue or bank"),
    ],
)
def test_flux_jobs_with_a_value_that_is_none(tmp_path, keys, said):
    text = json.dumps({"jobs": [listed(**keys)]})
    assert f"job 1: {said}" in refusal(write(tmp_path, text, "jobs.json"))


SHAPE = {"nodes": 2, "cores": 4, "duration": 60}
SPEC = jobspec(**SHAPE, queue="batch", environment={"HOME": "/"}, command=["a"])
EVENTS = [
    (100, "submit", {"userid": 5, "urgency": 20, "flags": 0, "version": 1}),
    (100, "validate", None),
    (110, "depend", None),
    (111, "priority", {"priority": 20}),
    (120, "alloc", None),
    (121, "start", None),
    (141, "finish", {"status": 0}),
    (142, "release", {"ranks": "all", "final": True}),
    (142, "free", None),
    (142, "clean", None),
]


def log(events=EVENTS):
    lines = []
    for when, name, context in events:
        event = {"timestamp": float(when), "name": name}
        if context:
            event["context"] = context
        lines.append(json.dumps(event))
    return "\n".join(lines) + "\n"


def job_in(directory, eventlog, spec=SPEC):
    """Write the eventlog of a job, or of something else, and its jobspec, if any."""
    directory.mkdir(parents=True)
    (directory / "eventlog").write_text(eventlog)
    if spec:
        (directory / "jobspec").write_text(json.dumps(spec))


def test_eventlogs(tmp_path):
    logs, packed, unpacked = (tmp_path / name for name in ("logs", "dump.tar", "unpacked"))
    for name, events in (("job-1", EVENTS), ("job-2", EVENTS[:4]), ("job-3", EVENTS[:6])):
        job_in(logs / name, log(events))
    # Others that flux dump writes: of a job's shell, and of a service.
    for name in ("job-1/guest/exec", "resource"):
        job_in(logs / name, '{"timestamp": 1.0, "name": "init"}\n', None)
    ((record,), source) = read(str(logs))
    assert fields(record, "submit run limit request") == [111, 20, 60, (2, 8, 0)]
    assert fields(record, "urgency queue user") == [20, "batch", "5"]
    assert record.extra["jobspec"]["resources"] == SPEC["resources"]
    for job in ("ca00", "cb00"):
        directory = unpacked / "job/0000/000b" / job / "0000"
        job_in(directory, log())
        job_in(directory / "guest/exec", "{}", None)
    with tarfile.open(packed, "w") as archive:
        archive.add(unpacked / "job", "job")
    for path in (packed, unpacked):
        ((again, other), _) = read(str(path))
        assert again.run == record.run
        assert (again.id, other.id) == ("50633637888", "50650415104")
    assert Trace(str(packed)).workload().machine.nodes == 2
    machine = unpacked / "resource" / "R"
    machine.parent.mkdir()
    machine.write_text(json.dumps(make_R(3, cores=2)))
    work = Trace(str(unpacked)).workload()
    assert "machine: 3 nodes, 6 cores (resource.R of the trace)" in work.notes.lines()
    text = "unit node: job 50633637888 shares nodes, by its jobspec"
    with pytest.raises(OptionError, match=text):
        Trace(str(unpacked), unit="node").workload()
    machine.write_text("{}")
    with pytest.raises(TraceError, match="unpacked: resource/R: no resource set: R.version"):
        Trace(str(unpacked)).workload()
    (logs / "job-1" / "eventlog").write_text(log() + "nonsense\n")
    assert "FILE:11: job-1/eventlog: not an event" in refusal(str(logs))


def test_accounting(tmp_path):
    path = tmp_path / "FluxAccounting.db"

    def run(*commands):
        database = sqlite3.connect(path)
        for command in commands:
            database.execute(command, [json.dumps(SPEC)] if "?" in command else [])
        database.commit()
        database.close()

    run(
        "create table jobs (id char(16) primary key, userid int, t_submit real, t_run real, t_inactive real, ranks text,"
        " R text, jobspec text)",
        "insert into jobs values ('1', 5, 100, 120, 140, '0-1', '', ?)",
        "insert into jobs values ('2', 5, 100, 0, 140, '', '', ?)",
    )
    ((record,), source) = read(str(path))
    assert fields(record, "submit run request") == [100, 20, (2, 8, 0)]
    assert "no jobs that never ran" in notes(source)
    run("alter table jobs add column bank text", "update jobs set bank = 'physics'")
    work = Trace(str(path)).workload()
    assert record.group is None and work.jobs[0].group == "physics"
    assert "not a database" in refusal(write(tmp_path, b"SQLite format 3\0" + b"x" * 200, "bad.db"))


def test_batsim(tmp_path):
    document = {
        "nb_res": 4,
        "jobs": [
            {"id": "w!1", "subtime": 10, "res": 2, "profile": "d", "walltime": 60},
            {"id": "w!0", "subtime": 1.5, "res": 1, "profile": "old"},
            {"id": "w!2", "subtime": 1, "res": 1, "profile": "p"},
            {"id": "w!3", "subtime": 2, "res": 2.5, "profile": "old"},
        ],
        "profiles": {
            "d": {"type": "DelayProfile", "delay": 12.5},
            "old": {"type": "delay", "delay": 3},
            "p": {"type": "parallel", "cpu": [1]},
        },
    }
    records, source = read(write(tmp_path, json.dumps(document), "w.json"))
    found = [(r.id, r.submit, r.run, r.limit, r.request[0]) for r in records]
    assert found == [("w!1", 10, 12.5, 60, 2), ("w!0", 1.5, 3, None, 1), ("w!3", 2, 3, None, 3)]
    assert source.nodes == 4
    assert "profile of type parallel" in notes(source)
    assert "1 job has a size that is not whole: rounded up" in notes(source)
    job = document["jobs"][0]
    for changed, text in (
        ({**job, "profile": "none"}, "jobs[0]: profile 'none' is not there"),
        ({**job, "walltime": math.nan}, "jobs[0]: walltime nan: expected seconds"),
        ({key: job[key] for key in job if key != "profile"}, "jobs[0]: no 'profile'"),
    ):
        document["jobs"][0] = changed
        assert text in refusal(write(tmp_path, json.dumps(document), "w.json"))


# -- workloads ------------------------------------------------------------------------------------------------


def workload(tmp_path, text, **options):
    return Trace(write(tmp_path, text), **options).workload()


def test_order_and_numbers(tmp_path):
    work = workload(tmp_path, swf(row(1, 50), row(1, 20), row(1, 30)))
    assert [(job.id, job.submit) for job in work.jobs] == [("1", 0), ("1#2", 10), ("1#3", 30)]
    assert work.epoch == 1e9 + 20
    assert "1 job comes after a later one" in notes(work)
    assert "2 jobs have the number of another" in notes(work)
    work = workload(tmp_path, swf(row(1), row(2, before=1)))
    assert "1 job follows another job: they do not wait" in notes(work)
    jobs = [{"id": id, "submit": 0, "run": 1, "nodes": 1} for id in ("1", "1", "1#2", "1", "1#2")]
    work = Trace(jobs).workload()
    assert [job.id for job in work.jobs] == ["1", "1#2", "1#2#2", "1#3", "1#2#3"]
    assert "4 jobs have the number of another" in notes(work)


def test_a_memory_beyond_reason_is_still_an_amount(tmp_path):
    work = workload(tmp_path, swf(row(memory="1e300")), memory_per_node="1G")
    asked = work.jobs[0].extra["memory"]["per-slot"]
    assert read_amount(asked, True) > 1 << 50


def test_a_machine_that_is_too_small_for_the_trace_itself(tmp_path):
    rows = [row(n, submit=n, run=100, size=2, limit=200, wait=0) for n in range(1, 7)]
    work = workload(tmp_path, swf(*rows, header=""))
    warning = work.notes.warnings[0]
    assert "the machine has 2 nodes" in warning and "used 12 at once" in warning
    assert "unknown: the size of the largest" in notes(work)
    assert work.notes.lines()[0] == f"WARNING: {warning}"
    work = workload(tmp_path, swf(*rows, header=""), nodes=2)  # as was asked for
    assert not [text for text in work.notes.warnings if "used 12 at once" in text]
    work = workload(tmp_path, swf(*rows))
    # 64 processors by its header
    assert not [text for text in work.notes.warnings if "used 12 at once" in text]


def test_a_trace_without_limits(tmp_path):
    text = swf(row(limit=-1), row(2, limit=-1))
    (warning,) = workload(tmp_path, text).notes.warnings
    assert warning.startswith("no job has a limit") and "--estimates=tsafrir" in warning
    assert workload(tmp_path, text, estimates="run").notes.warnings == []
    assert workload(tmp_path, swf(row(limit=-1), row(2))).notes.warnings == []
    (warning,) = workload(tmp_path, swf(row(), row(2)), estimates="run").notes.warnings
    assert "--estimates changes nothing" in warning


def test_limits_and_estimates(tmp_path):
    text = swf(row(limit=-1, run=100), row(2, limit=50, run=100))
    work = workload(tmp_path, text)
    assert [job.limit for job in work.jobs] == [0, 50]
    assert [job.seconds for job in work.jobs] == [100, 50]
    assert "ran longer than their limit" in notes(work)
    for options, limits in (
        ({"limits": "run"}, [100, 100]), ({"limits": "x2"}, [200, 200]), ({"estimates": "run"}, [100, 50]),
    ):  # fmt: skip
        assert [job.limit for job in workload(tmp_path, text, **options).jobs] == limits
    made_up = workload(tmp_path, text, estimates="tsafrir").jobs[0].limit
    assert made_up >= 100
    assert made_up == workload(tmp_path, text, estimates="tsafrir").jobs[0].limit


@pytest.mark.parametrize(
    "options",
    [
        {"limits": "y2"}, {"limits": "x0.5"}, {"estimates": "f:0"}, {"estimates": "guess"}, {"window": "5-2"},
        {"window": "soon"}, {"scale_arrivals": 0}, {"shake": -5}, {"shake": float("nan")}, {"format": "bogus"},
        {"jobs": 1, "window": "400-500"},
    ],
)  # fmt: skip
def test_options_that_cannot_be(tmp_path, options):
    with pytest.raises(ValueError):
        workload(tmp_path, swf(row(limit=-1)), **options)


def test_window_jobs_and_scale(tmp_path):
    text = swf(*[row(n, 86400 * n) for n in range(10)])
    for options, ids in (
        ({"window": "2-5"}, "234"), ({"window": "2"}, "01"), ({"window": "2001-09-10/2001-09-12"}, "12"),
        ({"jobs": 3}, "012"),
    ):  # fmt: skip
        assert [job.id for job in workload(tmp_path, text, **options).jobs] == list(ids)
    assert workload(tmp_path, text, scale_arrivals=0.5).jobs[9].submit == 86400 * 4.5


def test_lublin():
    rows = list(lublin.generate("", 3000, 128, 1))
    assert rows == list(lublin.generate("", 3000, 128, 1))
    assert rows != list(lublin.generate("", 3000, 128, 2))
    sizes = [size for _, _, size, _ in rows]
    assert min(sizes) == 1 and max(sizes) <= 128
    serial = sum(size == 1 for size in sizes) / len(sizes)
    power = sum(size & (size - 1) == 0 for size in sizes) / len(sizes)
    assert abs(serial - 0.244) < 0.05  # as the model has it
    assert power > 0.244 + 0.5
    assert all(a[0] <= b[0] for a, b in zip(rows, rows[1:]))
    assert max(run for _, run, _, _ in rows) <= 162754  # e^12
    night = sum(1 for submit, _, _, _ in rows if 2 <= submit / 3600 % 24 < 6)
    noon = sum(1 for submit, _, _, _ in rows if 10 <= submit / 3600 % 24 < 14)
    assert noon > 2 * night
    kinds = {kind for *_, kind in lublin.generate("type=both", 300, 128, 1)}
    assert kinds == {"batch", "interactive"}
    faults = "type=odd uLow=x nonsense=1 bNum=0 bArr=-1 serial=2 start=24 uHi=2000"
    faults += " aArr=1000 a1=1000,a2=1000 aNum=1e6,bNum=0.01"
    for bad in faults.split():
        with pytest.raises(ValueError, match="model lublin"):
            list(lublin.generate(bad, 1, 128, 1))


@pytest.mark.parametrize(
    "name, jobs",
    [
        ("SDSC-SP2-pyss-5k.swf", 4606),
        ("metacentrum-wagap-2013.swf.gz", 17898),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 18239),
        ("lassen_250_10250.csv", 10001),
    ],
)
def test_traces(name, jobs):
    work = Trace(str(data_path(f"traces/{name}"))).workload()
    assert len(work.jobs) == jobs


def warned(tmp_path, jobs, **options):
    """The warnings about a trace of (submit, run, limit, status)."""
    rows = (row(i, job[0], job[1], 1, *job[2:]) for i, job in enumerate(jobs, 1))
    return workload(tmp_path, swf(*rows, header=""), nodes=4, **options).notes.warnings


def test_few_cut_jobs_that_are_much_of_the_area_are_warned_of(tmp_path):
    jobs = [(i * 60, 10, 60, 1) for i in range(99)]
    (text,) = warned(tmp_path, [*jobs, (6000, 1000, 60, 1)])
    assert text.startswith("1.0 % of the jobs are cut at their limits, and with them 47.2 % of")


def test_jobs_that_shared_nodes_and_get_whole_ones_are_warned_of(tmp_path):
    rows = [{"submit": i * 9, "run": 5, "limit": 5, "nodes": 2, "cores": 8 - i} for i in range(3)]
    (text,) = Trace(rows, nodes=4, cores_per_node=4).workload().notes.warnings
    assert text.startswith("2 of 3 jobs have fewer cores than their nodes, of 4 cores each")
    for options in ({"unit": "core"}, {"cores_per_node": 3}):
        more = {"cores_per_node": 4, **options}
        assert Trace(rows, nodes=4, **more).workload().notes.warnings == []


def test_a_load_above_1_is_warned_of(tmp_path):
    (text,) = warned(tmp_path, [(i * 10, 100, 200, 1) for i in range(50)])
    assert text.startswith("the offered load is 2.55: more work is submitted than the machine can")
    assert warned(tmp_path, [(i * 1000, 3932, 5000, 1) for i in range(50)]) == []  # 1.003
    rows = [{"submit": i * 100, "run": 50, "limit": 50, "nodes": 1 + 999 * i} for i in range(2)]
    (text,) = Trace(rows, nodes=1).workload().notes.warnings  # and none of a load above 1
    assert text.startswith("1 of 2 jobs request more than the machine has")


def test_a_gap_of_most_of_the_trace_is_warned_of(tmp_path):
    (text,) = warned(tmp_path, [(i * 3600 + (i > 9) * 864000, 100, 200, 1) for i in range(20)])
    assert text.startswith("for 10.0 of 10.8 days, from day 0.4 on, no job is submitted")


STATES = ("COMPLETED", "CANCELLED by 12", "NODE_FAIL", "TIMEOUT", "SUSPENDED")


def a_table(name, states):
    rows = (f"{i}{name}{i * 9}{name}5{name}9{name}1{name}{state}" for i, state in enumerate(states))
    return "\n".join([name.join(("id", "submit", "elapsed", "limit", "nodes", "state")), *rows])


def a_list(results=("COMPLETED", 4, "FAILED", 8, None)):
    return json.dumps({"jobs": [listed(id=i, result=one) for i, one in enumerate(results)]})


def logs_of(directory):
    killed = {"severity": 0, "note": ""}
    ends = [("exception", {"type": kind, **killed}) for kind in ("cancel", "exec", "timeout")]
    ends = [("finish", {"status": 0}), *ends, ("exception", {"type": "preempt", "severity": 1})]
    for number, (name, context) in enumerate(ends):
        events = [*EVENTS[:6], (140, name, context), (141, "finish", {"status": 0})]
        job_in(directory / f"job-{number}", log(events + EVENTS[7:]))


@pytest.mark.parametrize("form", ["sacct", "csv", "list", "logs"])
def test_statuses_of_all_formats_that_have_them(tmp_path, form):
    path = tmp_path / "trace"
    if form == "logs":
        logs_of(path)
    else:
        texts = {"sacct": a_table("|", STATES), "csv": a_table(",", STATES), "list": a_list()}
        path.write_text(texts[form])
    records, _ = read(str(path))
    last = 1 if form == "logs" else -1
    assert [record.status for record in records] == [1, 5, 0, 0, last]
    (text,) = [one for one in Trace(str(path)).workload().notes.warnings if "failed" in one]
    assert text.startswith("3 of 5 jobs failed or were cancelled (status 0 or 5), and are included")
    work = Trace(str(path), status=(1, -1)).workload()
    assert len(work.jobs) == 2
    assert work.notes.get("jobs left out: their status is 0 (--status)") == 2
    assert not [one for one in work.notes.warnings if "failed" in one]
