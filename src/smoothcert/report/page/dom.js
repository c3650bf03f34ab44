// Elements, numbers and files. Text from the data only ever becomes text nodes and attributes, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "line") element.style.setProperty("--line", `var(--c${value % 7})`);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}
const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const find = (selector) => document.querySelector(selector);

const grouped = new Intl.NumberFormat("en");
const count = (n) => grouped.format(n);
const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
const size = (radius) => (Math.floor(1000 * radius) / 1000).toFixed(3); // down: what is shown is proved, too
const short = (number) => String(Number(number.toPrecision(6)));
const odds = (alpha) => {
  const n = Math.round(1 / alpha);
  return Math.abs(n * alpha - 1) < 1e-9 ? `1 in ${count(n)}` : short(alpha);
};

const className = (run, k) => run.classes?.[k] ?? String(k);
const answer = (run, k) => (k < 0 ? "none" : className(run, k));

// A cell that a spreadsheet would take for a formula gets an apostrophe; a number stays a number.
function csvCell(value) {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

function csvButton(file, rows, text = "Download as CSV") {
  const save = () => {
    const url = URL.createObjectURL(new Blob(["\ufeff", csv(rows())], { type: "text/csv" }));
    h("a", { href: url, download: file }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  return h("button", { type: "button", onclick: save }, text);
}

function swatch(line) {
  return s(
    "svg",
    { class: "swatch", viewBox: "0 0 26 11", "aria-hidden": "true", line: line.index },
    s("path", { class: line.envelope ? "envelope" : line.basis, d: "M0 5.5H26" }),
  );
}
