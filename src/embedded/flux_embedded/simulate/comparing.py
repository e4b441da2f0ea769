"""``flux simulate compare``, and where two results part."""

import os

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.options import Parser
from flux_embedded.simulate.report.svg import moment_text, span_text
from flux_embedded.simulate.results import reading, table

#: Jobs that are listed of a queue.
SHOWN = 8


def compare_main(argv):
    """Run the command; returns the exit code."""
    parser = Parser(
        prog="flux-simulate compare", description="Compare results that lie in directories"
    )
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="of policies, or given with -o"
    )
    parser.add_argument("--diff", metavar="A,B", help="where two of them part, by number")
    parser.add_argument("-o", "--output", metavar="FILE", help="write a report")
    options = parser.parse_args(argv)
    try:
        results = reading.find(options.directories)
        warn_of_others(results)
        seeds = [result.provenance.get("seed") for result in results]
        if any(seed is not None for seed in seeds):
            groups = {}
            for result in results:
                groups.setdefault(result.name, []).append(result.summary)
            print("\n".join(table.seeds_table(list(groups.items()))))
        else:
            _show(results, options)
        if options.diff:
            pair = _pair(options.diff, results)
            print("\n" + "\n".join(first_difference(*(result.directory for result in pair))))
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    return 0


def _show(results, options):
    summaries = [result.summary for result in results]
    for number, result in enumerate(results, 1):
        print(f"{number}: {result.name}  ({result.directory})")
    print("\n".join(["", *table.main_table(summaries), "", *table.class_table(summaries)]))
    for line in table.remarks(summaries):
        print(line)
    if options.output:
        from flux_embedded.simulate.report.page import write_report

        write_report(options.output, summaries, "Comparison", results[0].provenance["notes"])


def _pair(text, results):
    try:
        first, second = (int(part) for part in text.split(","))
        if not (1 <= first <= len(results) and 1 <= second <= len(results)):
            raise ValueError
    except ValueError:
        raise ValueError(f"--diff={text}: expected two numbers, 1 to {len(results)}") from None
    return results[first - 1], results[second - 1]


def warn_of_others(results):
    """Say so if the results are not of the same jobs on the same machine.

    Raises:
        ValueError: they are not comparable at all: another number of jobs
    """
    first = results[0]
    for other in results[1:]:
        if other.provenance.get("jobs") != first.provenance.get("jobs"):
            raise ValueError(
                f"{other.directory} has {other.provenance.get('jobs')} jobs, {first.directory} has {first.provenance.get('jobs')}: "
                "these are different workloads"
            )
        for key in ("machine", "files"):
            mine = first.provenance.get(key), other.provenance.get(key)
            if key == "files":
                mine = tuple([one["sha256"] for one in files] for files in mine)
            if mine[0] != mine[1]:
                print(f"note: {other.directory} and {first.directory} are of different {key}")


def first_difference(one, other):
    """The first job that two results start at different times, and the state at that moment.

    Args:
        one, other (str): directories

    Returns:
        list of str: lines for a person

    Raises:
        ResultError: a result cannot be read, or they are of different jobs
    """
    results = [reading.Result(one), reading.Result(other)]
    rows = [result.rows() for result in results]
    if [row.id for row in rows[0]] != [row.id for row in rows[1]]:
        raise reading.ResultError(f"{one} and {other} are of different jobs")
    never = float("inf")
    apart = [
        (
            min(
                a.start if a.start is not None else never, b.start if b.start is not None else never
            ),
            i,
        )
        for i, (a, b) in enumerate(zip(*rows))
        if a.start != b.start
    ]
    names = [result.name for result in results]
    if not apart:
        return [f"{names[0]} and {names[1]}: all {len(rows[0]):,} jobs start at the same times"]
    when, index = min(apart)
    job = rows[0][index]
    lines = [
        f"{names[0]} and {names[1]}: {len(apart):,} of {len(rows[0]):,} jobs start at different times; the first:",
        f"job {job.id}: size {job.size}, limit {span_text(job.limit) if job.limit else 'none'}, submitted {moment_text(job.submit)}",
    ]
    for name, some in zip(names, rows):
        start = some[index].start
        said = "never started" if start is None else f"starts {moment_text(start)} ({start:g} s)"
        promise = some[index].promise
        if promise is not None:
            said += f", first promised {moment_text(promise)}"
        lines.append(f"  {name}: {said}")
    if when == never:
        return lines
    lines.append(f"at {moment_text(when)} ({when:g} s), before anything starts:")
    for name, some, result in zip(names, rows, results):
        lines += _state(name, some, result.units, when)
        # Until then both went the same way.
        break
    return lines


def _state(name, rows, units, when):
    running = [
        row
        for row in rows
        if row.start is not None and row.start < when and (row.end is None or row.end > when)
    ]
    waiting = [
        row
        for row in rows
        if row.submit <= when
        and (row.start is None or row.start >= when)
        and row.state != "REJECTED"
    ]
    idle = units - sum(row.size for row in running)
    lines = [f"  {idle} of {units} units idle, {len(running)} jobs running, {len(waiting)} waiting"]
    ends = sorted(running, key=lambda row: row.start + row.limit if row.limit else float("inf"))
    for row in ends[:SHOWN]:
        end = moment_text(row.start + row.limit) if row.limit else "nobody knows when"
        lines.append(f"    running job {row.id}: size {row.size}, ends by {end}")
    if len(ends) > SHOWN:
        lines.append(f"    and {len(ends) - SHOWN} more")
    for row in waiting[:SHOWN]:
        limit = span_text(row.limit) if row.limit else "none"
        lines.append(
            f"    waiting job {row.id}: size {row.size}, limit {limit}, since {moment_text(row.submit)}"
        )
    if len(waiting) > SHOWN:
        lines.append(f"    and {len(waiting) - SHOWN} more")
    return lines


def directories_of(base):
    """The results below a directory, as paths."""
    return [result.directory for result in reading.find([os.fspath(base)])]
