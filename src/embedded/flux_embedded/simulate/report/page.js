"use strict";
// Zooming and details of the Gantt charts. The page says the same without: details are titles of the bars.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const details = document.getElementById("details");
  const STEPS = [1, 5, 15, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000, 31536000];

  function words(seconds) {
    const pad = (n) => String(n).padStart(2, "0");
    const whole = Math.round(seconds), days = Math.floor(whole / 86400), rest = whole - days * 86400;
    const clock = pad(Math.floor(rest / 3600)) + ":" + pad(Math.floor(rest / 60) % 60) + (rest % 60 ? ":" + pad(rest % 60) : "");
    return rest ? days + " d " + clock : days + " d";
  }

  for (const chart of document.querySelectorAll("svg.gantt")) {
    const plot = chart.querySelector("svg.plot"), ids = chart.querySelector("g.ids"), ticks = chart.querySelector("g.ticks");
    const [left, top, wide, high] = plot.getAttribute("viewBox").split(" ").map(Number);
    const begin = Number(chart.dataset.begin), end = Number(chart.dataset.end);
    const original = ticks.innerHTML;
    let low = 0, high_ = 1, drag = null;

    function show() {
      plot.setAttribute("viewBox", `${left + low * wide} ${top} ${(high_ - low) * wide} ${high}`);
      const all = low === 0 && high_ === 1;
      ids.style.display = all ? "" : "none";
      if (all) { ticks.innerHTML = original; return; }
      const from = begin + low * (end - begin), to = begin + high_ * (end - begin);
      const step = STEPS.find((one) => one >= (to - from) / 6) || 31536000;
      ticks.textContent = "";
      for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
        const x = left + (at - from) / (to - from) * wide;
        const line = document.createElementNS(NS, "path"), label = document.createElementNS(NS, "text");
        line.setAttribute("class", "grid");
        line.setAttribute("d", `M${x} ${top}V${top + high}`);
        label.setAttribute("x", x);
        label.setAttribute("y", top + high + 16);
        label.setAttribute("text-anchor", "middle");
        label.textContent = words(at);
        ticks.append(line, label);
      }
    }

    const share = (event) => {
      const box = chart.getBoundingClientRect(), scale = chart.viewBox.baseVal.width / box.width;
      return Math.min(1, Math.max(0, ((event.clientX - box.left) * scale - left) / wide));
    };
    const set = (a, b) => {
      const size = Math.min(1, Math.max(0.002, b - a));
      low = Math.min(Math.max(0, a), 1 - size);
      high_ = low + size;
      show();
    };

    chart.addEventListener("wheel", (event) => {
      event.preventDefault();
      const at = low + share(event) * (high_ - low), factor = event.deltaY < 0 ? 0.8 : 1.25;
      set(at - (at - low) * factor, at + (high_ - at) * factor);
    }, { passive: false });
    chart.addEventListener("pointerdown", (event) => { drag = [share(event), low, high_]; });
    addEventListener("pointerup", () => { drag = null; });
    chart.addEventListener("dblclick", () => set(0, 1));
    chart.addEventListener("pointermove", (event) => {
      if (drag) {
        const by = (drag[0] - share(event)) * (drag[2] - drag[1]);
        set(drag[1] + by, drag[2] + by);
      }
      const bar = event.target.closest(".job");
      if (!bar) { details.hidden = true; return; }
      let title = bar.querySelector("title");
      if (title) { bar.dataset.words = title.textContent; title.remove(); }
      details.textContent = bar.dataset.words;
      details.hidden = false;
      details.style.left = Math.min(event.clientX + 14, innerWidth - 350) + "px";
      details.style.top = Math.min(event.clientY + 14, innerHeight - details.offsetHeight - 8) + "px";
    });
    chart.addEventListener("pointerleave", () => { details.hidden = true; });
  }
})();
