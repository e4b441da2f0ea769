# SPDX-License-Identifier: LGPL-3.0-or-later
"""The report in a browser: headless Chromium, without a network; and without a script run."""

import html
import json
import re
import shutil
from xml.etree import ElementTree

import pytest
from shared import run

from flux.simulate import policy
from flux.simulate.report import charts
from flux.simulate.report.page import page
from flux.simulate.results.metrics import figures, jain, part_names, parts
from flux.simulate.results.outcome import Outcome
from flux.simulate.results.picture import Cells, picture_data
from flux.simulate.results.statistics import losses
from flux.simulate.run import Settings, simulate
from flux.simulate.trace import Trace, sample_path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1100,1400",
]  # fmt: skip


def summaries_of(policies, seeds=None, **options):
    work = Trace(sample_path(), **options).workload()
    found = []
    for number, one in enumerate(policy.parse(policies), 1):
        for seed in range(seeds or 1):
            shaken = work
            if seeds:
                shaken = Trace(sample_path(), seed=seed, shake=30.0, **options).workload()
            outcome, summary = simulate(shaken, one, Settings())
            summary = {**summary, "number": number, "picture": picture_data(outcome)}
            found.append({**summary, "seed": seed} if seeds else summary)
    return found, work


@pytest.fixture(scope="module")
def text():
    summaries, work = summaries_of(["sched-fifo", "sched-backfill"])
    found = [
        {"later": 3, "earlier": 5, "same": 1, "only_first": 0, "only_second": 0, "lost": 7200.0, "won": 9.0,
         "worst": 60.0, "users": [["<ann>", 3600.0]]}
    ]  # fmt: skip
    record = {"command": "flux simulate <x>", "files": [{"path": "/a", "sha256": "0" * 64}]}
    return page(summaries, "a <title> & more", work.notes.lines(), found, [record])


@pytest.fixture
def browse(tmp_path):
    if BROWSER is None:
        pytest.skip("no Chromium: install Debian's package chromium")

    def chromium(text, *args):
        path = tmp_path / "report.html"
        path.write_text(text)
        options = [*OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", *args]
        done = run(BROWSER, *options, path.as_uri(), timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return chromium


def test_it_is_one_file(text):
    body = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=|url\(|@import|https?://(?!www\.w3\.org)""", body)
    assert "http" not in re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "a &lt;title&gt; &amp; more" in text
    assert len(text) < 2_000_000


def parse_charts(text):
    for chart in re.findall(r"<figure>(.*?)</figure>", text, re.DOTALL):
        ElementTree.fromstring(f"<figure>{chart}</figure>")


def test_charts_are_well_formed(text):
    assert text.count("<figure>") == 11
    parse_charts(text)


def test_the_number_of_merged_jobs_is_told(text):
    merged = r"the 500 largest as bars, the other [\d,]+ \([\d.]+ % of the used area\) merged"
    assert re.search(merged, text)
    assert "All jobs that ran in this window, which is the same for all policies" in text


def test_the_losers_and_the_provenance(text):
    assert "against sched-fifo" in text and "&lt;ann&gt; (1)" in text
    assert "flux simulate &lt;x&gt;" in text and "SHA-256 " + "0" * 64 in text


def test_tables_and_scales(text):
    by_class = "By class of size and run time: mean bounded slowdown"
    for heading in ("The workload", "Slowdown", by_class, "By size: mean wait"):
        assert f"<h2>{heading}</h2>" in text
    for column in ("wait p95", "p99", "by area", "bsld p95"):
        assert f"<th>{column}</th>" in text
    assert "4 times or more" in text and "waiting, jobs" in text


@pytest.mark.parametrize("count", [1, 3, 12])
def test_a_strip_each_where_lines_cannot_be_told_apart(count):
    summaries, work = summaries_of(["sched-fifo"], jobs=60)
    many = [{**summaries[0], "policy": f"p{n}", "number": n + 1} for n in range(count)]
    text = page(many, "title", work.notes.lines())
    assert text.count('class="area c') == (count if count > 2 else 0)
    assert text.count("Allocations: ") == count
    parse_charts(text)


def test_seeds_have_bands():
    summaries, work = summaries_of(["sched-fifo", "sched-backfill"], seeds=3, jobs=80)
    text = page(summaries, "title", work.notes.lines())
    assert text.count('class="band c0"') == text.count('class="band c1"') == 2
    assert "Differences, paired by seed, with 95 % intervals" in text
    assert text.count("Allocations: ") == 2


def test_a_sweep_has_curves():
    summaries = []
    for factor in (0.8, 1.0, 1.25):
        some, work = summaries_of(["sched-fifo", "sched-backfill"], jobs=80, scale_arrivals=factor)
        summaries += [{**one, "variant": {"scale_arrivals": str(factor)}} for one in some]
    text = page(summaries, "title", work.notes.lines())
    assert text.count("along the sweep") == 3
    assert "Figures: scale-arrivals=0.8" in text and "Figures: scale-arrivals=1.25" in text


def test_without_scripts(text, browse):
    plain = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    dom = browse(plain, "--dump-dom")
    headings = ("Figures", "Waits", "By class", "Promises and starts", "Allocations: sched-fifo")
    assert [heading for heading in headings if heading not in dom] == []
    assert dom.count("<title>job ") >= 900  # details of each bar
    assert 'class="tools"' not in dom


PROBE = """
<script>
const chart = document.querySelector("svg.gantt"), plot = chart.querySelector("svg.plot");
const box = chart.getBoundingClientRect(), before = plot.getAttribute("viewBox");
const at = { clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true, cancelable: true };
const plain = chart.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -100 }));
const scrolled = plain && plot.getAttribute("viewBox") === before;
chart.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -100, ctrlKey: true }));
const zoomed = plot.getAttribute("viewBox");
chart.querySelector(".job").dispatchEvent(new PointerEvent("pointermove", at));
const shown = document.getElementById("details").textContent;
const visible = !document.getElementById("details").hidden;
chart.dispatchEvent(new MouseEvent("dblclick", at));
const after = plot.getAttribute("viewBox");
const tools = chart.parentElement.nextElementSibling;
[...tools.querySelectorAll("button")].find((one) => one.textContent === "+").click();
const pressed = plot.getAttribute("viewBox") !== before;
[...tools.querySelectorAll("button")].find((one) => one.textContent === "all").click();
document.getElementById("details").hidden = true;
chart.querySelector(".job").dispatchEvent(new PointerEvent("pointerdown", { ...at, pointerType: "touch" }));
const tapped = !document.getElementById("details").hidden;
const link = document.querySelector(".tools a");
link.addEventListener("click", (event) => event.preventDefault());
link.click();
const saved = link.href.startsWith("blob:") && link.download.endsWith(".svg");
const request = new XMLHttpRequest();
request.open("GET", link.href, false);
let file = "";
try { request.send(); file = request.responseText.slice(0, 400); } catch (error) { file = String(error); }
const wide = document.documentElement.scrollWidth <= innerWidth;
document.body.dataset.seen = JSON.stringify({ zoomed: zoomed !== before, back: after === before, shown, visible, wide, scrolled, pressed, tapped, saved, file });
</script>"""


def test_zoom_and_details(text, browse):
    dom = browse(text.replace("</body>", PROBE + "</body>"), "--dump-dom")
    seen = json.loads(html.unescape(re.search(r'data-seen="(.*?)"', dom).group(1)))
    assert seen["zoomed"] and seen["back"] and seen["visible"] and seen["wide"]
    assert seen["scrolled"] and seen["pressed"] and seen["tapped"] and seen["saved"]
    file = seen["file"]
    assert file.startswith("<svg ") and "http://www.w3.org/2000/svg" in file, file
    assert re.match(r"job \d+, size \d+\nsubmitted ", seen["shown"])


@pytest.mark.parametrize("scheme, bright", [("light", True), ("dark", False)])
def test_light_and_dark(text, browse, tmp_path, scheme, bright):
    probe = "<script>document.body.dataset.back = getComputedStyle(document.body).backgroundColor;</script>"
    setting = "--blink-settings=preferredColorScheme=" + ("1" if bright else "0")
    dom = browse(text.replace("</body>", probe + "</body>"), "--dump-dom", setting)
    color = re.search(r'data-back="rgb\((.*?)\)"', dom).group(1)
    channels = [int(value) for value in color.split(",")]
    assert (min(channels) > 200) if bright else (max(channels) < 60)
    picture = tmp_path / f"{scheme}.png"
    browse(text, f"--screenshot={picture}", setting)
    assert picture.stat().st_size > 20_000


def test_a_narrow_window(text, browse):
    probe = "<script>document.body.dataset.wide = document.documentElement.scrollWidth;</script>"
    dom = browse(text.replace("</body>", probe + "</body>"), "--dump-dom", "--window-size=800,1000")
    assert int(re.search(r'data-wide="(\d+)"', dom).group(1)) <= 800


# -- charts -----------------------------------------------------------------------------------------------------


def cells_area(texts, end, units):
    """Unit seconds that the digits of cells stand for, about."""
    height, width = units / len(texts), end / len(texts[0])
    return sum(int(digit) / 9 for text in texts for digit in text) * height * width


def test_cells():
    cells = Cells(4, 0.0, 100.0, 10, 4)
    cells.add(0.0, 100.0, "0")
    cells.add(15.0, 35.0, "1 3")
    cells.add(50.0, 50.0, "2")  # of no length
    cells.add(-50.0, 5.0, "2")  # began before
    assert cells.texts() == ["9999999999", "0494000000", "4000000000", "0494000000"]
    halves = Cells(4, 0.0, 10.0, 1, 2)
    halves.add(0.0, 10.0, "0 2-3")
    assert halves.texts() == ["4", "9"]


def test_all_policies_show_the_same_window_and_all_that_ran_in_it():
    work = Trace(sample_path()).workload()
    charts_of = []
    for one in policy.parse(["sched-fifo", "sched-backfill"]):
        outcome, _ = simulate(work, one, Settings())
        chart = picture_data(outcome)["gantt"]
        begin, end = chart["begin"], chart["end"]
        inside = [i for i in outcome.started() if outcome.start[i] < end and outcome.end[i] > begin]
        assert len(chart["jobs"]) == 500
        # But for those of no length, at its ends.
        assert abs(len(inside) - len(chart["jobs"]) - chart["merged"]) <= 20
        drawn = {row[0] for row in chart["jobs"]}
        area = {}
        for i in inside:
            seconds = min(outcome.end[i], end) - max(outcome.start[i], begin)
            area[work.jobs[i].id] = seconds * work.jobs[i].size
        merged = [area[id] for id in area if id not in drawn]
        assert min(area[id] for id in drawn) >= max(merged)
        assert chart["merged_share"] == pytest.approx(sum(merged) / sum(area.values()))
        charts_of.append((begin, end))
        # The whole run is there, too.
        whole = picture_data(outcome)["whole"]
        runs = outcome.columns[1]
        used = sum(runs[i] * work.jobs[i].size for i in outcome.started())
        assert cells_area(whole["shade"], whole["end"], 128) == pytest.approx(used, rel=0.1)
    assert charts_of[0] == charts_of[1]


def test_every_broken_promise_is_drawn():
    work = Trace(sample_path()).workload()
    outcome = Outcome(work, 0.0)
    late = set(range(0, 2000, 25))
    for i in range(2000):
        outcome.start[i], outcome.end[i] = 100.0 + i, 101.0 + i
        outcome.promise[i] = outcome.start[i] + (-5 if i in late else 5)
    picture = picture_data(outcome)
    assert picture["promised"]["made"] == 2000 and picture["promised"]["broken"] == len(late) == 80
    broken = [point for point in picture["promises"] if point[1] > point[0]]
    assert len(broken) == 80 < len(picture["promises"]) < 2000
    assert charts.promises([picture]).count("broken") == 80
    # One that is late by a clock tick is kept, in the table and in both of the report's.
    for late, count in ((0.001, 0), (0.04, 80)):
        for i in range(2000):
            outcome.start[i] = 100.0 + i + (late if i % 25 == 0 else 0.0)
            outcome.promise[i] = 100.0 + i
        picture = picture_data(outcome)
        assert figures(outcome)["promises_broken"] == picture["promised"]["broken"] == count
        assert charts.promises([picture]).count("broken") == count


def test_losses():
    nan = float("nan")
    jobs = [("ann", 2), ("bob", 1), ("ann", 4), ("eve", 1), (None, 1)]
    found = losses([0.0, 10.0, 20.0, nan, 5.0], [5.0, 4.0, 30.0, 7.0, 5.0], jobs)
    assert found == {
        "later": 2, "earlier": 1, "same": 1, "only_first": 0, "only_second": 1,
        "lost": 50.0, "won": 6.0, "worst": 10.0, "users": [["ann", 50.0]],
    }  # fmt: skip


@pytest.mark.parametrize(
    "values, index",
    [([3.0, 3.0, 3.0], 1.0), ([5.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 2.0], 0.9), ([0.0, 0.0], 1.0)],
)
def test_jains_index(values, index):
    assert jain(values) == pytest.approx(index)


def test_fairness_among_users(tmp_path):
    # Ann has the node for an hour, then bob for three; his two jobs wait for an hour, and for two.
    table = "id,submit,run,limit,nodes,user\n1,0,3600,3600,1,ann\n2,0,3600,3600,1,bob\n3,0,7200,7200,1,bob\n"
    (tmp_path / "jobs.csv").write_text(table)
    work = Trace(str(tmp_path / "jobs.csv"), nodes=1).workload()
    outcome, summary = simulate(work, *policy.parse(["sched-fifo"]), Settings())
    users = picture_data(outcome)["groups"]["user"]
    found = {name: (one["area"], one["waited"]) for name, one in users.items()}
    assert found == {"bob": (0.75, 1.0), "ann": (0.25, 0.0)}
    figures = summary["figures"]
    # Waits 0 and 5,400 s; slowdowns 1 and 2.
    assert (figures["users"], figures["jain_wait"], figures["jain_bsld"]) == (2, 0.5, 0.9)
    text = page([{**summary, "number": 1, "picture": picture_data(outcome)}], "title")
    assert "<td>75.0%</td><td>100.0%</td>" in text and "<td></td><td>0.9</td>" in text


def test_a_report_about_nothing():
    work = Trace(sample_path(), jobs=1).workload()
    outcome = Outcome(work, 0.0)
    picture = picture_data(outcome)
    assert charts.waits([picture]) and charts.over_time([picture])
    assert charts.promises([picture]) is None and picture["gantt"]["jobs"] == []


def test_names_of_classes_do_not_overlap():
    bounds = parts([1, 2, 3, 3, 4, 5, 8, 9])
    assert part_names(bounds, str, 1) == ["up to 2", "3", "4 to 5", "> 5"]
