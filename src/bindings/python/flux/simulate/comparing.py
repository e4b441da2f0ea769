# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate compare``, and the first difference of two results."""

import math
import os
import sys

from flux.simulate.report.svg import moment_text
from flux.simulate.results import reading, statistics, table
from flux.simulate.results.files import naming_errors
from flux.simulate.results.metrics import span_text
from flux.simulate.workload.record import OptionError
from flux_engine.command.options import Parser

#: Maximum number of queued jobs listed.
SHOWN = 8


def compare_main(argv):
    """Run the command. Return the exit code."""
    text = "Compare results that lie in directories"
    parser = Parser(prog="flux-simulate compare", description=text)
    parser.option("directories=DIR", "of policies, or given with -o", nargs="+")
    parser.option("--diff=A,B", "where two of them part, by number")
    parser.option("--across", "results of different workloads")
    parser.option("-o --output=FILE", "write a report")
    options = parser.parse_args(argv)
    try:
        results = in_order(reading.find(options.directories))
        if options.across:
            name_workloads(results)
        else:
            warn_of_others(results)
        refuse_twice(results)
        _show(results, options)
        if options.diff:
            # those of the policies, or of the results if a policy occurs twice
            known = table.number_of([result.summary for result in results])
            numbers = pair_of(options.diff, known)
            directories = [results[known.index(number)].directory for number in numbers]
            print("\n" + "\n".join(first_difference(*directories, numbers)))
    except OptionError as exc:
        return parser.error(str(exc))
    return 0


def in_order(results):
    """Sort results by workload, then by number of the policy."""
    bases = list(dict.fromkeys(result.base for result in results))

    def place(result):
        numbers = (result.summary.get(key, 0) for key in ("case", "number"))
        return bases.index(result.base), *numbers

    return sorted(results, key=place)


def _show(results, options):
    summaries = [result.summary for result in results]
    for text in [*table.warnings(summaries), *table.logged(summaries)]:
        print(f"WARNING: {text}", file=sys.stderr)
    if not any(result.provenance.get("seed") is not None for result in results):
        for number, result in zip(table.number_of(summaries), results):
            print(f"{number}: {result.name}  ({result.directory})")
    print("\n".join(table.tables(summaries)))
    for line in table.remarks(summaries):
        print(line)
    if options.output:
        from flux.simulate.report.page import write_report

        notes = results[0].provenance.get("notes", [])
        provenance = [result.provenance for result in results]
        # The losses are those on the first workload.
        case = (results[0].variant, results[0].provenance.get("seed"))
        same = [one for one in results if (one.variant, one.provenance.get("seed")) == case]
        same = [one for one in same if not one.summary.get("failed")]
        jobs = [(row.user, row.size) for one in same[:1] for row in one.rows()]
        lost = statistics.against_first([one.starts() for one in same], jobs)
        with naming_errors():
            write_report(options.output, summaries, "Comparison", notes, lost, provenance)


def pair_of(text, numbers):
    """Parse two of the numbers of some policies. Raises OptionError."""
    words = text.split(",")
    known = [str(number) for number in sorted(numbers)]
    if len(words) != 2 or len({*words} & {*known}) != 2:
        raise OptionError(f"--diff={text}: expected two numbers, of {', '.join(known)}")
    return [int(word) for word in words]


def warn_of_others(results):
    """Warn if the results are of different jobs or machines, apart from the varied option of a
    sweep. Raises ValueError if they are not comparable: the numbers of jobs differ, or only some
    are of a sweep or of seeds."""
    first = results[0]
    for other in results[1:]:
        jobs = [result.provenance.get("jobs") for result in (other, first)]
        if jobs[0] != jobs[1]:
            raise ValueError(
                f"{other.directory} has {jobs[0]} jobs, {first.directory} has {jobs[1]}: "
                "these are different workloads (--across compares them)"
            )
        if _study(first) != _study(other):
            raise ValueError(
                f"{other.directory} and {first.directory} are not of one sweep, nor both of seeds: these are different"
                " workloads (--across compares them)"
            )
        if first.variant != other.variant:
            continue
        for key, what in (("machine", "machines"), ("files", "files")):
            mine = first.provenance.get(key), other.provenance.get(key)
            if key == "files":
                mine = tuple([one["sha256"] for one in files or ()] for files in mine)
            if mine[0] != mine[1]:
                print(f"note: {other.directory} and {first.directory} are of different {what}")


def refuse_twice(results):
    """Raise ValueError if a seed of a policy is there twice: intervals would be too narrow."""
    known = {}
    for result in results:
        variant, seed = result.summary.get("variant"), result.provenance.get("seed")
        other = known.setdefault((result.name, repr(variant), seed), result)
        if other is not result and seed is not None:
            both = f"{other.directory} and {result.directory}"
            raise ValueError(f"{both} are of the same policy and seed, which counts once")


def _study(result):
    """Return the names of the options that its call varied."""
    seeds = ["seed"] if result.provenance.get("seed") is not None else []
    return [*(result.provenance.get("variant") or {}), *seeds]


def name_workloads(results):
    """Label results of different workloads like those of a sweep."""
    bases = list(dict.fromkeys(result.base for result in results))
    names = [os.path.basename(base) for base in bases]
    if len(set(names)) < len(names):
        names = bases
    for result in results:
        workload = {"workload": names[bases.index(result.base)]}
        result.summary["variant"] = {**workload, **result.summary.get("variant", {})}


def first_difference(one, other, numbers):
    """Describe the first job that starts at different times in the results of two directories, and
    the state at that moment, as lines of text; `numbers` are those of the policies. Raises
    ResultError if a result cannot be read, or the jobs differ."""
    results = [reading.Result(one), reading.Result(other)]
    rows = [result.rows() for result in results]
    if [row.id for row in rows[0]] != [row.id for row in rows[1]]:
        raise reading.ResultError(f"{one} and {other} are of different jobs")
    apart = [
        (min(math.inf if row.start is None else row.start for row in pair), index)
        for index, pair in enumerate(zip(*rows))
        if pair[0].start != pair[1].start
    ]
    names = [f"{number}: {result.name}" for number, result in zip(numbers, results)]
    if not apart:
        return [f"{names[0]}, and {names[1]}: all {len(rows[0]):,} jobs start at the same times"]
    when, index = min(apart)
    job = rows[0][index]
    lines = [
        f"{names[0]}, and {names[1]}: {len(apart):,} of {len(rows[0]):,} jobs start at different times; the first:",
        f"job {job.id}: size {job.size}, limit {span_text(job.limit) if job.limit else 'none'}, submitted {moment_text(job.submit)}",
    ]
    for name, some in zip(names, rows):
        start = some[index].start
        said = "never started" if start is None else f"starts {moment_text(start)} ({start:g} s)"
        promise = some[index].promise
        if promise is not None:
            said += f", first promised {moment_text(promise)}"
        lines.append(f"  {name}: {said}")
    # Up to this moment the two schedules are equal.
    lines.append(f"at {moment_text(when)} ({when:g} s), before anything starts:")
    return lines + _state(rows[0], results[0].units, when)


def _state(rows, units, when):
    began = [row for row in rows if row.start is not None and row.start < when]
    running = [row for row in began if row.end is None or row.end > when]
    waiting = [row for row in rows if row.submit <= when and row.state != "REJECTED"]
    waiting = [row for row in waiting if row.start is None or row.start >= when]
    idle = units - sum(row.size for row in running)
    lines = [f"  {idle} of {units} units idle, {len(running)} jobs running, {len(waiting)} waiting"]
    ends = sorted(running, key=lambda row: row.start + row.limit if row.limit else math.inf)
    for row in ends[:SHOWN]:
        end = f"ends by {moment_text(row.start + row.limit)}" if row.limit else "without a limit"
        lines.append(f"    running job {row.id}: size {row.size}, {end}")
    if len(ends) > SHOWN:
        lines.append(f"    and {len(ends) - SHOWN} more")
    for row in waiting[:SHOWN]:
        limit = span_text(row.limit) if row.limit else "none"
        text = f"size {row.size}, limit {limit}, since {moment_text(row.submit)}"
        lines.append(f"    waiting job {row.id}: {text}")
    if len(waiting) > SHOWN:
        lines.append(f"    and {len(waiting) - SHOWN} more")
    return lines
