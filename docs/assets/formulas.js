// Formulas are in the page as \( … \) and \[ … \]; KaTeX, which comes with the site, draws them.
for (const place of document.querySelectorAll(".arithmatex")) {
  const text = place.textContent.trim();
  katex.render(text.slice(2, -2), place, { displayMode: text.startsWith("\\["), throwOnError: false });
}
