"use strict";
// Zooming and details of the Gantt charts, and charts as files. The page says the same without: details are titles of the bars.
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

  // -- charts as files ----------------------------------------------------------------------------------------------

  // A file has no style sheet: what the page's says goes into each element. Colours are those that are shown.
  const COPIED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-family", "display"];

  function asFile(chart) {
    const copy = chart.cloneNode(true);
    const from = [chart, ...chart.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
    from.forEach((element, place) => {
      const seen = getComputedStyle(element);
      to[place].setAttribute("style", COPIED.map((name) => name + ":" + seen.getPropertyValue(name)).join(";"));
    });
    const box = chart.viewBox.baseVal, back = document.createElementNS(NS, "rect");
    copy.setAttribute("xmlns", NS);
    copy.setAttribute("width", box.width);
    copy.setAttribute("height", box.height);
    back.setAttribute("width", "100%");
    back.setAttribute("height", "100%");
    back.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
    copy.prepend(back);
    return new XMLSerializer().serializeToString(copy);
  }

  function tool(bar, text, title, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.title = title;
    button.addEventListener("click", act);
    bar.append(button);
  }

  for (const frame of document.querySelectorAll(".chart")) {
    const chart = frame.querySelector("svg"), bar = document.createElement("div"), link = document.createElement("a");
    bar.className = "tools";
    link.textContent = "SVG";
    link.title = "save this picture";
    link.download = (chart.getAttribute("aria-label") || "chart").toLowerCase().replace(/[^a-z0-9]+/g, "-") + ".svg";
    link.href = "#";
    // Made when it is asked for: a page has a dozen charts, each with thousands of elements.
    const make = () => { if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
      link.href = URL.createObjectURL(new Blob([asFile(chart)], { type: "image/svg+xml" })); };
    link.addEventListener("click", make);
    bar.append(link);
    frame.after(bar);
    chart.tools = bar;
  }

  // -- zooming ------------------------------------------------------------------------------------------------------

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
    const zoom = (at, factor) => set(at - (at - low) * factor, at + (high_ - at) * factor);
    const middle = () => (low + high_) / 2;

    tool(chart.tools, "+", "zoom in", () => zoom(middle(), 0.5));
    tool(chart.tools, "\u2212", "zoom out", () => zoom(middle(), 2));
    tool(chart.tools, "\u2190", "earlier", () => set(low - (high_ - low) / 3, high_ - (high_ - low) / 3));
    tool(chart.tools, "\u2192", "later", () => set(low + (high_ - low) / 3, high_ + (high_ - low) / 3));
    tool(chart.tools, "all", "show all", () => set(0, 1));

    // The wheel alone scrolls the page.
    chart.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(low + share(event) * (high_ - low), event.deltaY < 0 ? 0.8 : 1.25);
    }, { passive: false });

    function tell(event) {
      const bar = event.target.closest(".job");
      if (!bar) { details.hidden = true; return; }
      const title = bar.querySelector("title");
      if (title) { bar.dataset.words = title.textContent; title.remove(); }
      details.textContent = bar.dataset.words;
      details.hidden = false;
      details.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - 350)) + "px";
      details.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - details.offsetHeight - 8)) + "px";
    }

    // A finger scrolls, and a tap shows details; a mouse drags.
    chart.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") tell(event); else drag = [share(event), low, high_];
    });
    addEventListener("pointerup", () => { drag = null; });
    chart.addEventListener("dblclick", () => set(0, 1));
    chart.addEventListener("pointermove", (event) => {
      if (drag) {
        const by = (drag[0] - share(event)) * (drag[2] - drag[1]);
        set(drag[1] + by, drag[2] + by);
      }
      if (event.pointerType !== "touch") tell(event);
    });
    chart.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") details.hidden = true; });
  }
})();
