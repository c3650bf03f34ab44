// Every input: pictures, votes, radius; filtered, sorted, a page at a time, each with its detail.
const PAGE = 30;
const sheets = new Map();

function sheet(uri) {
  if (!sheets.has(uri)) {
    const image = new Image();
    image.src = uri;
    sheets.set(
      uri,
      image.decode().then(() => image),
    );
  }
  return sheets.get(uri);
}

function picture(run, kind, i, label) {
  const { width, height, columns, cells, [kind]: uris } = run.pictures;
  const canvas = h("canvas", {
    class: `picture${width < 48 ? " pixels" : ""}`,
    width,
    height,
    role: "img",
    "aria-label": label,
  });
  const cell = i % cells;
  sheet(uris[Math.floor(i / cells)]).then((image) =>
    canvas
      .getContext("2d")
      .drawImage(
        image,
        (cell % columns) * width,
        Math.floor(cell / columns) * height,
        width,
        height,
        0,
        0,
        width,
        height,
      ),
  );
  return canvas;
}

const noiseWords = (run) => (run.pictures.whole ? "with the run's noise" : "with noise as strong as the run's");

// Rows of name, bar and value; the chosen one is coloured and named.
function bars(rows, most, label) {
  return h(
    "div",
    {
      class: "bars",
      role: "img",
      "aria-label": `${label}: ${rows.map((row) => `${row.name} ${row.value}`).join(", ")}`,
    },
    ...rows.flatMap((row) => [
      h("span", {}, row.name),
      s(
        "svg",
        { viewBox: "0 0 100 10", preserveAspectRatio: "none" },
        s("rect", {
          class: row.chosen ? "chosen" : "",
          width: most > 0 ? Math.max(0.6, (100 * row.size) / most) : 0,
          height: 10,
        }),
      ),
      h("span", { class: "value" }, row.value),
    ]),
  );
}

function voteBars(run, i, prediction, top) {
  const votes = run.votes[i],
    total = Math.max(1, run.estimation[i]);
  const rows = votes
    .slice(0, top)
    .map(([k, n]) => ({ name: className(run, k), size: n, value: count(n), chosen: k === prediction }));
  return bars(rows, total, "Votes");
}

function outcomeOf(run, curve, i) {
  if (curve.prediction[i] < 0) return "abstained";
  return curve.prediction[i] === run.labels[i] ? "right" : "wrong";
}
const OUTCOMES = { right: "✓ right", wrong: "✗ wrong", abstained: "– no answer" };

// What the votes say of the class that is proved: by duels, how it fares against its closest rival.
function proofStep(run, curve, i, name) {
  if (!run.duels || curve.method !== "duels")
    return [
      voteBars(run, i, curve.prediction[i], 4),
      h("p", {}, `3. The network votes on every noisy copy. The winner is ${name}.`),
    ];
  const [rival, lost] = run.duels[i],
    total = run.estimation[i],
    other = className(run, rival);
  const rows = [
    { name, size: total - lost, value: count(total - lost), chosen: true },
    { name: other, size: lost, value: count(lost), chosen: false },
  ];
  return [
    bars(rows, Math.max(1, total), "Duels won"),
    h(
      "p",
      {},
      `3. Every noisy copy is a duel between ${name} and each other class: the network's larger score wins it. ` +
        `The closest rival is ${other}.`,
    ),
  ];
}

function explain(box, curve) {
  const run = data.runs[curve.run];
  if (!run.pictures || !run.votes) return;
  const able = curve.radius
    .map((r, i) => [r, i])
    .filter(([r, i]) => curve.prediction[i] === run.labels[i] && r >= data.headline)
    .sort((a, b) => a[0] - b[0]);
  if (!able.length) return;
  const [radius, i] = able[Math.floor(able.length / 4)],
    name = className(run, curve.prediction[i]);
  find("#example").hidden = false;
  box.append(
    h(
      "li",
      {},
      picture(run, "clean", i, `Input ${run.ids[i]}`),
      h("p", {}, `1. An input, labelled ${className(run, run.labels[i])}.`),
    ),
    h(
      "li",
      {},
      picture(run, "noisy", i, `Input ${run.ids[i]} ${noiseWords(run)}`),
      h("p", {}, `2. Noise is added, ${count(run.estimation[i])} times anew.`),
    ),
    h("li", {}, ...proofStep(run, curve, i, name)),
    h(
      "li",
      {},
      h("p", { class: "big" }, size(radius)),
      h("p", {}, `4. So clear a vote cannot turn unless the input changes by at least this much: its radius.`),
    ),
  );
}

function drawGallery(curves) {
  const state = { curve: curves[0], label: "", outcome: "", text: "", least: 0, sort: "order", page: 0, only: null };
  const form = find("#inputs .controls"),
    list = find("#inputs .gallery"),
    pages = find("#inputs .pages"),
    counter = find("#inputs .count");
  let order = [];
  const run = () => data.runs[state.curve.run];

  const select = (name, options, act) =>
    h(
      "select",
      {
        name,
        onchange: (event) => {
          act(event.target.value);
          refresh();
        },
      },
      ...options.map(([value, text]) => h("option", { value }, text)),
    );
  const field = (text, control) => h("label", {}, text, control);
  const labels = () => [
    ["", "all"],
    ...[...new Set(run().labels)].sort((a, b) => a - b).map((k) => [k, className(run(), k)]),
  ];
  const labelSelect = select("label", labels(), (value) => {
    state.label = value;
  });
  const curveSelect = select(
    "curve",
    curves.map((curve, i) => [i, curve.name + (curve.basis === "estimated" ? " (estimated)" : "")]),
    (value) => choose(curves[value]),
  );

  function choose(curve) {
    const other = curve.run !== state.curve.run;
    state.curve = curve;
    state.only = null;
    curveSelect.value = curves.indexOf(curve);
    if (other) {
      state.label = "";
      labelSelect.replaceChildren(...labels().map(([value, text]) => h("option", { value }, text)));
    }
  }

  form.append(
    ...[
      curves.length > 1 && field("certified by", curveSelect),
      field("label", labelSelect),
      field(
        "answer",
        select("outcome", [["", "all"], ...Object.entries(OUTCOMES)], (value) => {
          state.outcome = value;
        }),
      ),
      field(
        "radius at least",
        h("input", {
          type: "number",
          name: "least",
          min: 0,
          step: 0.05,
          value: 0,
          oninput: (event) => {
            state.least = Number(event.target.value) || 0;
            refresh();
          },
        }),
      ),
      field(
        "input",
        h("input", {
          type: "search",
          name: "text",
          placeholder: "id",
          oninput: (event) => {
            state.text = event.target.value;
            refresh();
          },
        }),
      ),
      field(
        "order",
        select(
          "sort",
          [
            ["order", "as in the data"],
            ["down", "largest radius first"],
            ["up", "smallest radius first"],
            ["label", "by label"],
          ],
          (value) => {
            state.sort = value;
          },
        ),
      ),
    ].filter(Boolean),
  );
  form.addEventListener("submit", (event) => event.preventDefault());

  const sorts = {
    order: () => 0,
    down: (a, b) => state.curve.radius[b] - state.curve.radius[a],
    up: (a, b) => state.curve.radius[a] - state.curve.radius[b],
    label: (a, b) => run().labels[a] - run().labels[b],
  };

  function refresh() {
    const text = state.text.trim().toLowerCase();
    order = (state.only?.list ?? run().ids.map((_, i) => i))
      .filter(
        (i) =>
          (state.label === "" || run().labels[i] === Number(state.label)) &&
          (state.outcome === "" || outcomeOf(run(), state.curve, i) === state.outcome) &&
          state.curve.radius[i] >= state.least &&
          run().ids[i].toLowerCase().includes(text),
      )
      .sort(sorts[state.sort]);
    state.page = 0;
    draw();
  }

  function draw() {
    const total = Math.max(1, Math.ceil(order.length / PAGE)),
      part = order.slice(state.page * PAGE, (state.page + 1) * PAGE);
    counter.replaceChildren(
      `${count(order.length)} of ${count(run().ids.length)} inputs`,
      ...(state.only
        ? [
            `, ${state.only.what} `,
            h(
              "button",
              {
                type: "button",
                class: "link",
                onclick: () => {
                  state.only = null;
                  refresh();
                },
              },
              "show all",
            ),
          ]
        : []),
    );
    list.replaceChildren(...part.map(tile));
    const turn = (to, text) =>
      h(
        "button",
        {
          type: "button",
          disabled: to < 0 || to >= total,
          onclick: () => {
            state.page = to;
            draw();
            find("#inputs").scrollIntoView();
          },
        },
        text,
      );
    pages.replaceChildren(
      turn(state.page - 1, "← Previous"),
      `page ${count(state.page + 1)} of ${count(total)}`,
      turn(state.page + 1, "Next →"),
      csvButton("inputs.csv", inputRows, "These inputs as CSV"),
    );
  }

  function tile(i) {
    const outcome = outcomeOf(run(), state.curve, i),
      label = className(run(), run().labels[i]),
      given = answer(run(), state.curve.prediction[i]);
    return h(
      "li",
      {},
      h(
        "button",
        { type: "button", class: "tile", onclick: () => open(order.indexOf(i)) },
        run().pictures &&
          h(
            "span",
            { class: "two" },
            picture(run(), "clean", i, `Input ${run().ids[i]}`),
            picture(run(), "noisy", i, noiseWords(run())),
          ),
        h(
          "span",
          { class: "top" },
          h("span", {}, "radius ", h("b", {}, size(state.curve.radius[i]))),
          h("span", { class: `outcome ${outcome}` }, OUTCOMES[outcome]),
        ),
        h("span", {}, outcome === "right" ? `label ${label}` : `label ${label}, answer ${given}`),
        run().votes && voteBars(run(), i, state.curve.prediction[i], 3),
      ),
    );
  }

  const inputRows = () => [
    ["input", "label", "answer", "outcome", "radius", "draws", "certified by", "votes"],
    ...order.map((i) => [
      run().ids[i],
      className(run(), run().labels[i]),
      answer(run(), state.curve.prediction[i]),
      outcomeOf(run(), state.curve, i),
      state.curve.radius[i],
      state.curve.draws[i],
      state.curve.name,
      (run().votes?.[i] ?? []).map(([k, n]) => `${className(run(), k)}: ${n}`).join("; "),
    ]),
  ];

  const dialog = find("#detail");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: "previous", ArrowRight: "next" }[event.key];
    if (turn) dialog.querySelector(`[data-turn=${turn}]`)?.click();
  });

  function open(at) {
    const i = order[at],
      here = run(),
      curve = state.curve,
      outcome = outcomeOf(here, curve, i),
      label = className(here, here.labels[i]);
    const claim =
      outcome === "abstained"
        ? "The votes are too close for an answer: nothing is claimed."
        : `The answer ${answer(here, curve.prediction[i])} (${outcome}) stays the same ` +
          `under every change smaller than ${size(curve.radius[i])}` +
          (curve.basis === "proved"
            ? curve.alpha === 0
              ? ", for certain."
              : `; the risk that this is wrong is at most ${odds(curve.alpha)}.`
            : ", by an estimate, not a proof.");
    const rivals = curves
      .filter((other) => other.basis === curve.basis)
      .flatMap((other) => {
        const k = other.run === curve.run ? i : data.runs[other.run].ids.indexOf(here.ids[i]);
        return k >= 0 && data.runs[other.run].labels[k] === here.labels[i] ? [{ other, k }] : [];
      });
    const most = Math.max(...rivals.map(({ other, k }) => other.radius[k]));
    const turn = (to, name, text) =>
      h(
        "button",
        { type: "button", "data-turn": name, disabled: to < 0 || to >= order.length, onclick: () => open(to) },
        text,
      );
    const figure = (kind, words) => h("figure", {}, picture(here, kind, i, words), h("figcaption", {}, words));
    const voteRows = () => [["class", "votes"], ...here.votes[i].map(([k, n]) => [className(here, k), n])];
    dialog.replaceChildren(
      ...[
        h(
          "div",
          { class: "head" },
          h("h2", { id: "detail-title" }, `Input ${here.ids[i]}: ${label}`),
          h("button", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕"),
        ),
        here.pictures &&
          h(
            "div",
            { class: "pair" },
            figure("clean", "the input"),
            figure(
              "noisy",
              here.pictures.whole ? `the first of its ${count(here.estimation[i])} noisy copies` : noiseWords(here),
            ),
          ),
        h("p", {}, claim),
        here.votes && h("h3", {}, `How ${count(here.estimation[i])} noisy copies voted`),
        here.votes && voteBars(here, i, curve.prediction[i], here.votes[i].length),
        rivals.length > 1 && h("h3", {}, "Radius"),
        rivals.length > 1 &&
          bars(
            rivals.map(({ other, k }) => ({
              name: other.name,
              size: other.radius[k],
              value: size(other.radius[k]),
              chosen: other === curve,
            })),
            most,
            "Radius",
          ),
        h("p", { class: "hint" }, `${count(curve.draws[i])} draws in all.`),
        h(
          "div",
          { class: "tools" },
          turn(at - 1, "previous", "← Previous"),
          here.votes && csvButton(`votes-${i}.csv`, voteRows, "Votes as CSV"),
          turn(at + 1, "next", "Next →"),
        ),
      ].filter(Boolean),
    );
    if (!dialog.open) dialog.showModal();
  }

  refresh();
  return (curve, indices, what) => {
    choose(curve);
    Object.assign(state, { only: { list: indices, what }, label: "", outcome: "", text: "", least: 0 });
    form.reset();
    curveSelect.value = curves.indexOf(curve);
    state.sort = "order";
    refresh();
    find("#inputs").scrollIntoView();
  };
}
