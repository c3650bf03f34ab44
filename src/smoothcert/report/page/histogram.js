// How sure the smoothed classifier is of each input: the distribution behind the average radius.
const BINS = 20;

function histogram(run) {
  const top = run.top,
    sorted = [...top].sort((a, b) => a - b),
    middle = sorted.length >> 1;
  const median = sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  const counts = new Array(BINS).fill(0);
  for (const p of top) counts[Math.min(BINS - 1, Math.floor(p * BINS))] += 1;
  const width = 320,
    height = 120,
    base = height - 22,
    most = Math.max(...counts);
  const x = (p) => 4 + p * (width - 8),
    y = (n) => base - (n / most) * (base - 16);
  const middleText = `median ${median.toFixed(3)}`;
  return h(
    "figure",
    { class: "histogram" },
    s(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": `Share of draws for the most frequent class, over ${count(top.length)} inputs: ${middleText}`,
      },
      ...counts.map((n, i) =>
        s("rect", { class: "bin", x: x(i / BINS) + 0.5, y: y(n), width: (width - 8) / BINS - 1, height: base - y(n) }),
      ),
      s("line", { class: "axis", x1: x(0), x2: x(1), y1: base, y2: base }),
      s("path", { class: "mark", fill: "none", d: `M${x(median)} ${base}V12` }),
      s(
        "text",
        { x: x(median) + (median > 0.5 ? -5 : 5), y: 12, "text-anchor": median > 0.5 ? "end" : "start" },
        middleText,
      ),
      ...[0, 0.5, 1].map((p) =>
        s("text", { x: x(p), y: height - 6, "text-anchor": ["start", "middle", "end"][2 * p] }, short(p)),
      ),
    ),
    h(
      "figcaption",
      { class: "hint" },
      data.runs.length > 1 ? `${run.name}: ` : "",
      "share of an input's draws that vote for its most frequent class",
    ),
  );
}

function distributions(box) {
  const known = data.runs.filter((run) => run.top?.length);
  if (!known.length) return;
  box.append(
    h("h3", {}, "What the average radius hides"),
    h(
      "p",
      { class: "note" },
      "A radius grows without limit as the votes for a class come near to all of them. So a few easy inputs can carry " +
        "an average, and a network can raise it while it gives up the hard ones (arXiv:2410.06895). Compare networks at a " +
        "radius that matters to you, and look at how sure they are of each input:",
    ),
    h("div", { class: "histograms" }, ...known.map(histogram)),
  );
}
