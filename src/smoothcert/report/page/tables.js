// Tables: certified accuracy at round radii, which method wins where, how two runs differ.

function table(caption, head, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...head.map((cell) => h("th", { scope: "col" }, cell)))),
      h("tbody", {}, ...rows),
    ),
  );
}

// The curves that are shown; proved and estimated figures never share a table.
function accuracyTables(box, curves) {
  box.replaceChildren();
  for (const basis of ["proved", "estimated"]) {
    const members = curves.filter((curve) => curve.basis === basis && curve.shown);
    if (!members.length) continue;
    box.append(
      accuracyTable(basis, members),
      h(
        "div",
        { class: "tools" },
        csvButton(`table-${basis}.csv`, () => accuracyRows(members)),
      ),
    );
  }
}

// What the certified share stands beside: without it nobody can tell a wrong label order from too much noise.
const ACCURACIES = { clean: "the model alone", noisy: "under noise", smoothed: "smoothed" };

function accuracyTable(basis, curves) {
  const shares = (curve) => [curve.accuracy, ...curve.certified];
  const best = shares(curves[0]).map((_, i) => Math.max(...curves.map((curve) => shares(curve)[i])));
  const widest = Math.max(...curves.map((curve) => curve.averageRadius));
  const bold = (text, is) => h("td", {}, is && curves.length > 1 && data.comparable ? h("b", {}, text) : text);
  const sure = percent(1 - data.rho);
  const of = (curve, key) => data.runs[curve.run].accuracies[key];
  const known = Object.keys(ACCURACIES).filter((key) => curves.some((curve) => of(curve, key) != null));
  const beside = (curve) =>
    known.map((key) => h("td", { class: "beside" }, of(curve, key) == null ? "" : percent(of(curve, key))));
  const rows = curves.flatMap((curve) => {
    const draws = curve.draws.reduce((a, b) => a + b, 0);
    return [
      h(
        "tr",
        { class: "upper" },
        h("th", { scope: "row" }, swatch(curve), curve.name),
        ...beside(curve),
        ...shares(curve).map((share, i) => bold(percent(share), share === best[i])),
        bold(curve.averageRadius.toFixed(3), curve.averageRadius === widest),
        h("td", {}, percent(curve.abstained)),
        h("td", {}, count(draws)),
      ),
      h(
        "tr",
        { class: "whole" },
        h("th", { scope: "row" }, `all at once, confidence ${sure}`),
        ...known.map(() => h("td")),
        ...shares(curve).map((share) => h("td", {}, percent(Math.max(0, share - curve.wrong / curve.total)))),
        h("td"),
        h("td"),
        h("td"),
      ),
    ];
  });
  const published = basis === "proved" && data.baseline ? data.baseline.rows : [];
  for (const { name, points } of published) {
    const told = new Map(points),
      cell = (r) => h("td", {}, told.has(r) ? percent(told.get(r)) : "");
    const empty = [1, 2, 3].map(() => h("td"));
    rows.push(
      h(
        "tr",
        { class: "published" },
        h("th", { scope: "row" }, name),
        ...[...known, "right answer"].map(() => h("td")),
        ...data.radii.map(cell),
        ...empty,
      ),
    );
  }
  return table(
    `Inputs that keep the right answer (${basis}), by the size of the change`,
    ["", ...known.map((key) => ACCURACIES[key]), "right answer", ...data.radii.map((r) => `< ${short(r)}`), "average radius", "no answer", "draws"],
    rows,
  );
}

const accuracyRows = (curves) => [
  [
    "name",
    "basis",
    "method",
    "alpha",
    "inputs",
    "possibly wrong",
    "any radius",
    ...data.radii.map((r) => `at ${short(r)}`),
    "average radius",
    "abstained",
  ],
  ...curves.map((c) => [
    c.name,
    c.basis,
    c.method,
    c.alpha,
    c.total,
    c.wrong,
    c.accuracy,
    ...c.certified,
    c.averageRadius,
    c.abstained,
  ]),
];

function meaning(box, curve) {
  const share = curve.share(data.headline),
    wrong = curve.wrong;
  if (curve.alpha === 0) {
    box.append(
      h(
        "div",
        { class: "card" },
        h("h3", {}, "Without noise"),
        h("p", {}, "Nothing is left to chance: every proof holds, each of its input alone and of the network itself."),
      ),
    );
    return;
  }
  const start = data.runs.length > 1 ? `With ${curve.name}, a few` : "A few";
  box.append(
    h(
      "div",
      { class: "card" },
      h("h3", {}, "For one input"),
      h(
        "p",
        {},
        `Each proof is wrong with probability at most ${odds(curve.alpha)}. It speaks of that input alone, and of ` +
          "the smoothed classifier, not of the network inside it.",
      ),
    ),
    h(
      "div",
      { class: "card" },
      h("h3", {}, "For all inputs at once"),
      h(
        "p",
        {},
        `${start} of ${count(curve.total)} proofs may be wrong: with confidence ${percent(1 - data.rho)} ` +
          `at most ${count(wrong)}. So for the whole set, ${percent(share)} at ${short(data.headline)} becomes ` +
          `${percent(Math.max(0, share - wrong / curve.total))}, and every other figure shrinks by as much.`,
      ),
    ),
  );
}

// For each method the inputs on which its radius is larger than that of every other.
function winners(curves) {
  const wins = curves.map(() => []);
  curves[0].radius.forEach((_, i) => {
    const radii = curves.map((curve) => curve.radius[i]),
      most = Math.max(...radii);
    const best = radii.flatMap((r, k) => (r >= most - 1e-9 ? [k] : []));
    if (most > 0 && best.length === 1) wins[best[0]].push(i);
  });
  return wins;
}

function methodTables(box, curves, showOnly) {
  data.runs.forEach((run, r) => {
    const members = curves.filter((curve) => curve.run === r && curve.basis === "proved");
    if (members.length < 2) return;
    const wins = winners(members),
      alone = wins.reduce((sum, list) => sum + list.length, 0);
    const rows = members.map((curve, k) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, swatch(curve), curve.method),
        h("td", { class: "words" }, curve.about + (curve.declared ? " The run's own choice." : "")),
        h(
          "td",
          {},
          wins[k].length
            ? h(
                "button",
                { type: "button", class: "link", onclick: () => showOnly(curve, wins[k], `won by ${curve.method}`) },
                count(wins[k].length),
              )
            : "0",
        ),
        h("td", {}, curve.averageRadius.toFixed(3)),
      ),
    );
    const ids = () => [
      ["method", "input", "radius"],
      ...members.flatMap((curve, k) => wins[k].map((i) => [curve.method, run.ids[i], curve.radius[i]])),
    ];
    box.append(
      h(
        "p",
        { class: "note" },
        "Methods differ in what they conclude from the same votes. Each is right at its own risk, but only if " +
          "it was chosen before looking: whoever takes the one that wins on each input adds up their risks.",
      ),
      table(
        data.runs.length > 1 ? run.name : "The same votes, other conclusions",
        ["method", "what it does", "largest radius on", "average radius"],
        rows,
      ),
      alone < run.ids.length
        ? h(
            "p",
            { class: "hint" },
            `On the other ${count(run.ids.length - alone)} inputs no method is ahead of all others.`,
          )
        : "",
      h("div", { class: "tools" }, csvButton("wins.csv", ids)),
    );
    find("#wins").hidden = false;
  });
}

function pairedTable(box, curves, showOnly) {
  const paired = data.paired;
  if (!paired) return;
  find("#paired").hidden = false;
  const [first, second] = [0, 1].map((r) => curves.find((curve) => curve.run === r));
  const chance = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));
  const link = (curve, ids, what) => {
    const wanted = new Set(ids),
      list = data.runs[curve.run].ids.flatMap((id, i) => (wanted.has(id) ? [i] : []));
    return ids.length
      ? h("button", { type: "button", class: "link", onclick: () => showOnly(curve, list, what) }, count(ids.length))
      : "0";
  };
  const row = (name, contrast, what) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td", {}, link(first, contrast.first, `${what}: only ${paired.names[0]}`)),
      h("td", {}, link(second, contrast.second, `${what}: only ${paired.names[1]}`)),
      h("td", {}, chance(contrast.p)),
    );
  const contrasts = [
    ["larger radius", paired.larger],
    ...data.radii.map((r, i) => [`< ${short(r)}`, paired.certified[i]]),
  ];
  const ids = () => [
    ["comparison", "better", "input"],
    ...contrasts.flatMap(([name, c]) => [
      ...c.first.map((id) => [name, paired.names[0], id]),
      ...c.second.map((id) => [name, paired.names[1], id]),
    ]),
  ];
  box.append(
    h(
      "p",
      { class: "note" },
      `${count(paired.inputs)} inputs are in both runs. The last column is the probability that two equally good ` +
        "runs would differ this much by chance (exact sign test; for a radius, McNemar's).",
    ),
    table(
      "Inputs on which only one run keeps the right answer, by the size of the change",
      ["", ...paired.names.map((name) => `only ${name}`), "chance"],
      contrasts.map(([name, contrast]) => row(name, contrast, name)),
    ),
    h("div", { class: "tools" }, csvButton("differences.csv", ids)),
  );
}
