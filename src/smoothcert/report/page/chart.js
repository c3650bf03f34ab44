// Certified accuracy against radius: a step curve a series, a cursor, zoom, and the upper envelope of several runs.

// How many of the sorted radii are at least r.
function atLeast(sorted, r) {
  let low = 0,
    high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < r) low = middle + 1;
    else high = middle;
  }
  return sorted.length - low;
}

function curveOf(series, index) {
  const run = data.runs[series.run];
  const won = series.radius.filter((_, i) => series.prediction[i] === run.labels[i]).sort((a, b) => a - b);
  const total = series.radius.length;
  return { ...series, index, won, total, last: won.at(-1) ?? 0, share: (r) => atLeast(won, r) / total };
}

function envelopeOf(curves) {
  const xs = [...new Set(curves.flatMap((curve) => curve.won))].sort((a, b) => a - b);
  const share = (r) => Math.max(0, ...curves.map((curve) => curve.share(r)));
  return { name: "upper envelope", envelope: true, won: xs, last: xs.at(-1) ?? 0, share, shown: true };
}

function ticks(from, to, most) {
  const raw = (to - from) / most,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * (1 - 1e-9));
  const first = Math.ceil(from / step - 1e-9);
  return Array.from({ length: Math.floor(to / step + 1e-9) - first + 1 }, (_, i) =>
    Number(((first + i) * step).toPrecision(10)),
  );
}

function drawChart(box, curves, claimed) {
  const farthest = (data.baseline?.rows ?? []).flatMap(({ points }) => points.filter(([, share]) => share > 0));
  const limit = Math.max(...curves.map((curve) => curve.last), ...farthest.map(([r]) => r)) * 1.04 || 1;
  const view = { from: 0, to: limit },
    margin = { left: 52, right: 14, top: 30, bottom: 46 };
  let cursor = null,
    brush = null,
    plot = null;
  const picture = s("svg", {
    tabindex: "0",
    role: "application",
    "aria-describedby": "chart-help",
    "aria-label": "Share of inputs that provably keep the right answer, against the size of the change",
  });
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const layer = s("g");
  const shown = () => {
    const visible = curves.filter((curve) => curve.shown && !curve.envelope);
    const proved = visible.filter((curve) => curve.basis === "proved");
    const asked = curves.some((curve) => curve.envelope && curve.shown);
    return asked && new Set(proved.map((curve) => curve.run)).size > 1 ? [envelopeOf(proved), ...visible] : visible;
  };

  function path(curve) {
    const xs = [...new Set(curve.won)].filter((r) => r > view.from && r < view.to);
    const steps = [...xs, Math.min(view.to, curve.last)].map(
      (r) => `V${plot.y(curve.share(r)).toFixed(2)}H${plot.x(r).toFixed(2)}`,
    );
    if (curve.last <= view.from) return "";
    const start = `M${plot.x(view.from).toFixed(2)} ${plot.y(curve.share(view.from)).toFixed(2)}`;
    return start + steps.join("") + (curve.last <= view.to ? `V${plot.y(plot.low).toFixed(2)}` : "");
  }

  function render() {
    const width = Math.max(300, box.clientWidth || 640),
      height = Math.round(Math.max(270, Math.min(400, width * 0.45)));
    const zoomed = view.from > 0 || view.to < limit,
      visible = shown();
    const ends = visible.flatMap((curve) => [curve.share(view.from), curve.share(view.to)]);
    const low = zoomed && ends.length ? Math.max(0, Math.floor(Math.min(...ends) * 20 - 0.2) / 20) : 0;
    const high = zoomed && ends.length ? Math.min(1, Math.ceil(Math.max(...ends) * 20 + 0.2) / 20) : 1;
    const right = width - margin.right,
      bottom = height - margin.bottom;
    plot = {
      low,
      right,
      bottom,
      width,
      x: (r) => margin.left + ((r - view.from) / (view.to - view.from)) * (right - margin.left),
      y: (share) => bottom - ((share - low) / (high - low)) * (bottom - margin.top),
      radius: (x) =>
        Math.min(
          view.to,
          Math.max(view.from, view.from + ((x - margin.left) / (right - margin.left)) * (view.to - view.from)),
        ),
    };
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.replaceChildren(
      ...ticks(low, high, 6).map((t) =>
        s(
          "g",
          {},
          s("line", { class: "grid", x1: margin.left, x2: right, y1: plot.y(t), y2: plot.y(t) }),
          s("text", { x: margin.left - 8, y: plot.y(t) + 4, "text-anchor": "end" }, `${short(100 * t)}\u00a0%`),
        ),
      ),
      ...ticks(view.from, view.to, width < 500 ? 5 : 10).map((t) =>
        s("text", { x: plot.x(t), y: bottom + 19, "text-anchor": "middle" }, short(t)),
      ),
      s("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }),
      s(
        "text",
        { x: (margin.left + right) / 2, y: height - 6, "text-anchor": "middle" },
        "size of the change (radius, ℓ2)",
      ),
      s("text", { x: margin.left, y: 14 }, "inputs that provably keep the right answer"),
      ...visible.map((curve) =>
        s("path", {
          class: curve.envelope ? "envelope" : `line ${curve.basis}`,
          d: path(curve),
          "data-name": curve.name,
          line: curve.index ?? 0,
        }),
      ),
      ...published(),
      ...mark(visible),
      layer,
    );
    point();
  }

  // Points of a published table, for they are not curves that were computed here.
  function published() {
    return (data.baseline?.rows ?? []).flatMap(({ name, points }) =>
      points
        .filter(([r, share]) => share > 0 && r >= view.from && r <= view.to)
        .map(([r, share]) =>
          s(
            "circle",
            { class: "published", cx: plot.x(r), cy: plot.y(share), r: 3.5 },
            s("title", {}, `${name}: ${percent(share)} at ${short(r)}`),
          ),
        ),
    );
  }

  // The headline's claim, where it stands on its curve.
  function mark(visible) {
    const curve = visible.find((one) => one.index === claimed && !one.envelope),
      r = data.headline;
    if (!curve || r <= view.from || r >= view.to) return [];
    const x = plot.x(r),
      y = plot.y(curve.share(r)),
      late = x > plot.width - 150;
    return [
      s("path", { class: "mark", fill: "none", d: `M${margin.left} ${y}H${x}V${plot.bottom}` }),
      s("circle", { class: "dot", cx: x, cy: y, r: 5, line: curve.index }),
      s(
        "text",
        { class: "claim", x: late ? x - 9 : x + 9, y: late ? y + 18 : y - 7, "text-anchor": late ? "end" : "start" },
        `${percent(curve.share(r))} up to ${short(r)}`,
      ),
    ];
  }

  function point() {
    layer.replaceChildren();
    readout.replaceChildren();
    if (brush) {
      const [a, b] = [brush.start, brush.end].sort((p, q) => p - q);
      layer.append(s("rect", { class: "brush", x: a, y: margin.top, width: b - a, height: plot.bottom - margin.top }));
    }
    if (cursor == null) return;
    const r = Math.min(view.to, Math.max(view.from, cursor)),
      x = plot.x(r),
      visible = shown();
    layer.append(
      s("line", { class: "cursor", x1: x, x2: x, y1: margin.top, y2: plot.bottom }),
      ...visible
        .filter((curve) => !curve.envelope)
        .map((curve) =>
          s("circle", {
            class: "dot",
            cx: x,
            cy: plot.y(curve.share(r)),
            r: 4.5,
            line: curve.index,
          }),
        ),
    );
    readout.append(
      h(
        "table",
        {},
        h("caption", {}, `changes smaller than ${size(r)}`),
        ...visible.map((curve) =>
          h("tr", {}, h("th", {}, swatch(curve), " ", curve.name), h("td", {}, percent(curve.share(r)))),
        ),
      ),
    );
    const left = x / plot.width > 0.55;
    readout.style.left = left ? "" : `${(x / plot.width) * 100 + 1.5}%`;
    readout.style.right = left ? `${(1 - x / plot.width) * 100 + 1.5}%` : "";
  }

  function zoom(from, to) {
    const middle = (from + to) / 2,
      half = Math.max(limit / 1000, to - from) / 2;
    view.from = Math.max(0, middle - half);
    view.to = Math.min(limit, middle + half);
    render();
  }
  const scale = (factor) => {
    const centre = cursor ?? (view.from + view.to) / 2,
      half = ((view.to - view.from) * factor) / 2;
    zoom(centre - half, centre + half);
  };
  const whole = () => zoom(0, limit);

  const place = (event) =>
    ((event.clientX - picture.getBoundingClientRect().left) * plot.width) / picture.getBoundingClientRect().width;
  picture.addEventListener("pointermove", (event) => {
    const x = place(event);
    cursor = plot.radius(x);
    if (brush) brush.end = Math.min(plot.right, Math.max(margin.left, x));
    point();
  });
  picture.addEventListener("pointerdown", (event) => {
    const x = place(event);
    cursor = plot.radius(x);
    if (event.pointerType !== "touch" && event.button === 0 && x >= margin.left && x <= plot.right) {
      brush = { start: x, end: x };
      picture.setPointerCapture(event.pointerId);
    }
    point();
  });
  picture.addEventListener("pointerup", () => {
    const done = brush;
    brush = null;
    if (done && Math.abs(done.end - done.start) > 8) {
      const [from, to] = [plot.radius(done.start), plot.radius(done.end)].sort((a, b) => a - b);
      zoom(from, to);
    } else point();
  });
  picture.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch" && !brush) {
      cursor = null;
      point();
    }
  });
  picture.addEventListener("blur", () => {
    cursor = null;
    point();
  });
  picture.addEventListener("dblclick", whole);
  picture.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / (event.shiftKey ? 10 : 100),
      now = cursor ?? view.from;
    const act = {
      ArrowRight: () => {
        cursor = Math.min(view.to, now + step);
        point();
      },
      ArrowLeft: () => {
        cursor = Math.max(view.from, now - step);
        point();
      },
      Home: () => {
        cursor = view.from;
        point();
      },
      End: () => {
        cursor = view.to;
        point();
      },
      "+": () => scale(0.5),
      "=": () => scale(0.5),
      "-": () => scale(2),
      0: whole,
      Escape: whole,
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

  const rows = () => [
    ["curve", "basis", "radius", "share of inputs"],
    ...shown().flatMap((curve) =>
      [0, ...new Set(curve.won.filter((r) => r > 0))].map((r) => [
        curve.name,
        curve.envelope ? "proved" : curve.basis,
        r,
        curve.share(r),
      ]),
    ),
  ];
  const button = (label, text, act) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  box.append(
    picture,
    readout,
    h(
      "div",
      { class: "tools" },
      button("Zoom in", "+", () => scale(0.5)),
      button("Zoom out", "−", () => scale(2)),
      button("Show all", "All", whole),
      csvButton("curves.csv", rows),
      h("p", { class: "hint", id: "chart-help" }, "Drag across the plot to zoom. On the keyboard: arrows, + and −."),
    ),
  );
  new ResizeObserver(render).observe(box);
  render();
  return render;
}

function drawLegend(box, curves, redraw) {
  const compared = curves.some((curve) => curve.declared === false);
  box.append(
    ...curves.map((curve) =>
      h(
        "label",
        {},
        h("input", {
          type: "checkbox",
          checked: curve.shown,
          onchange: (event) => {
            curve.shown = event.target.checked;
            redraw();
          },
        }),
        swatch(curve),
        curve.name,
        h(
          "span",
          { class: "basis" },
          curve.basis === "estimated"
            ? "estimated, not proved"
            : curve.declared && compared
              ? "the run's own method"
              : "",
        ),
      ),
    ),
  );
}
