// The page, top to bottom.
const curves = data.series.map(curveOf);
const several = data.runs.length > 1 && data.comparable;
const main =
  curves.filter((curve) => curve.shown && (data.comparable || curve.run === 0)).sort((a, b) => b.share(data.headline) - a.share(data.headline))[0] ?? curves[0];

explain(find("#example .steps"), main);
const lines = several ? [...curves, { ...envelopeOf([]), index: 0 }] : curves;
const chart = drawChart(find("#curves .chart"), lines, main.index);
drawLegend(find("#curves .legend"), lines, () => {
  chart();
  accuracyTables(find("#curves .tables"), curves);
});
accuracyTables(find("#curves .tables"), curves);
distributions(find("#curves .spread"));
meaning(find("#meaning .cards"), main);
const showOnly = drawGallery(curves);
methodTables(find("#wins > div"), curves, showOnly);
pairedTable(find("#paired > div"), curves, showOnly);

const recipe = data.runs
  .map((run) => [run.name, ...run.made.map(([key, value]) => `${key}: ${value}`)].join("\n"))
  .join("\n\n");
async function copy(event) {
  const button = event.target;
  try {
    await navigator.clipboard.writeText(recipe);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(find("#made > div"));
    button.textContent = "Selected: press Ctrl+C";
  }
}
find("#made > div").append(
  ...data.runs.map((run) =>
    h(
      "details",
      { class: "made", open: true },
      h("summary", {}, run.name),
      h("dl", {}, ...run.made.flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])),
    ),
  ),
  h("div", { class: "tools" }, h("button", { type: "button", onclick: copy }, "Copy all of it")),
);
