# SPDX-License-Identifier: LGPL-3.0-or-later
"""The report in a browser: headless Chromium, without a network; and without a script run."""

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from flux_embedded.simulate import policy
from flux_embedded.simulate.command import sample_path
from flux_embedded.simulate.report import charts, svg
from flux_embedded.simulate.report.page import page
from flux_embedded.simulate.results.picture import picture_data
from flux_embedded.simulate.run import Settings, simulate
from flux_embedded.simulate.workload.build import Options, build

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1100,1400",
]  # fmt: skip


@pytest.fixture(scope="module")
def text():
    work = build(Options(traces=[sample_path()], jobs=700))
    summaries = []
    for one in policy.parse(["sched-fifo", "sched-backfill"]):
        outcome, summary = simulate(work, one, Settings())
        summaries.append({**summary, "picture": picture_data(outcome)})
    return page(summaries, "a <title> & more", work.notes.lines())


@pytest.fixture
def browse(tmp_path):
    if BROWSER is None:
        pytest.skip("no Chromium: install Debian's package chromium")

    def chromium(text, *args):
        path = tmp_path / "report.html"
        path.write_text(text)
        command = [
            BROWSER,
            *OPTIONS,
            f"--user-data-dir={tmp_path / 'profile'}",
            *args,
            path.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return chromium


def test_it_is_one_file(text):
    body = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=|url\(|@import|https?://(?!www\.w3\.org)""", body)
    assert "http" not in re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "a &lt;title&gt; &amp; more" in text
    assert len(text) < 2_000_000


def test_charts_are_well_formed(text):
    assert text.count("<figure>") == 7
    for chart in re.findall(r"<figure>(.*?)</figure>", text, re.DOTALL):
        ElementTree.fromstring(f"<figure>{chart}</figure>")


def test_it_says_what_it_does_not_show(text):
    assert "500 of 700 jobs" in text and "beyond 500 jobs such a chart cannot be read" in text


def test_without_scripts(text, browse):
    plain = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    dom = browse(plain, "--dump-dom")
    for heading in (
        "The table",
        "How long jobs waited",
        "By class",
        "Promises and starts",
        "Who was where: sched-fifo",
    ):
        assert heading in dom
    assert dom.count("<title>job ") >= 900  # details of each bar


PROBE = """
<script>
const chart = document.querySelector("svg.gantt"), plot = chart.querySelector("svg.plot");
const box = chart.getBoundingClientRect(), before = plot.getAttribute("viewBox");
const at = { clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true, cancelable: true };
chart.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -100 }));
const zoomed = plot.getAttribute("viewBox");
chart.querySelector(".job").dispatchEvent(new PointerEvent("pointermove", at));
const shown = document.getElementById("details").textContent;
const visible = !document.getElementById("details").hidden;
chart.dispatchEvent(new MouseEvent("dblclick", at));
const after = plot.getAttribute("viewBox");
const wide = document.documentElement.scrollWidth <= innerWidth;
document.body.dataset.seen = JSON.stringify({ zoomed: zoomed !== before, back: after === before, shown, visible, wide });
</script>"""


def test_zoom_and_details(text, browse):
    import html
    import json

    dom = browse(text.replace("</body>", PROBE + "</body>"), "--dump-dom")
    seen = json.loads(html.unescape(re.search(r'data-seen="(.*?)"', dom).group(1)))
    assert seen["zoomed"] and seen["back"] and seen["visible"] and seen["wide"]
    assert re.match(r"job \d+, size \d+\nsubmitted ", seen["shown"])


@pytest.mark.parametrize("scheme, bright", [("light", True), ("dark", False)])
def test_light_and_dark(text, browse, tmp_path, scheme, bright):
    probe = "<script>document.body.dataset.back = getComputedStyle(document.body).backgroundColor;</script>"
    setting = "--blink-settings=preferredColorScheme=" + ("1" if bright else "0")
    dom = browse(text.replace("</body>", probe + "</body>"), "--dump-dom", setting)
    channels = [
        int(value) for value in re.search(r'data-back="rgb\((.*?)\)"', dom).group(1).split(",")
    ]
    assert (min(channels) > 200) if bright else (max(channels) < 60)
    picture = tmp_path / f"{scheme}.png"
    browse(text, f"--screenshot={picture}", setting)
    assert picture.stat().st_size > 20_000


def test_scales():
    scale = svg.Linear(0, 97, 0, 100)
    assert scale.ticks()[0] == 0 and scale.ticks()[-1] <= 97
    assert svg.Linear(0.003, 0.0061, 0, 1).ticks()
    assert svg.Linear(5, 5, 0, 1)(5) == 0  # nothing to divide by
    log = svg.Log(1, 1e6, 0, 60)
    assert log(0) == log(1) == 0 and log(1e6) == pytest.approx(60)
    for span in (1, 50, 4000, 86400, 1e6, 1e8, 4e9):
        ticks = svg.Time(0, span, 0, 1).ticks()
        assert 1 <= len(ticks) <= 10, span


def test_a_report_about_nothing():
    from flux_embedded.simulate.results.outcome import Outcome

    work = build(Options(traces=[sample_path()], jobs=1))
    outcome = Outcome(work, 0.0)
    picture = picture_data(outcome)
    assert charts.waits([picture]) and charts.over_time([picture])
    assert charts.promises([picture]) is None and picture["gantt"]["jobs"] == []
