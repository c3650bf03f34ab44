"""The page in a browser: Debian's Chromium, driven by Playwright, from a file and without a network."""

import csv
import dataclasses
import io
import re
import shutil

import numpy as np
import pytest

from report.squares import HOSTILE
from smoothcert.certificate import ESTIMATED
from smoothcert.report.contents import Contents
from smoothcert.report.curves import gather
from smoothcert.report.page import build_page, printable
from smoothcert.report.write import write_report

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser):
    """Opens a report; at the end there must have been no error and no request but for the file itself."""
    faults, pages = [], []

    def open_page(path, **options):
        page = browser.new_page(**{"viewport": {"width": 1100, "height": 800}, **options})
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else faults.append(request.url),
        )
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert faults == []


@pytest.fixture(scope="module")
def report(squares, tmp_path_factory):
    return write_report([squares], tmp_path_factory.mktemp("page") / "report.html")[0]


@pytest.fixture
def three(log_run, tmp_path):
    runs = [
        log_run(s, [(0, 0, s * (1 + i / 10)) for i in range(9)] + [(0, 1, 0.3)] * k + [(0, -1, 0.0)] * (8 - k))
        for s, k in ((0.25, 1), (0.5, 4), (1.0, 8))
    ]
    return write_report(runs, tmp_path / "three.html")[0], gather(runs)


def scale(page, axis):
    """The chart's linear map from pixels to values, found from two of its tick labels."""
    anchor, at, drop = ("middle", "x", 0) if axis == "x" else ("end", "y", 4)
    ticks = page.locator(f".chart svg text[text-anchor={anchor}]").evaluate_all(
        "(texts, [at, drop]) => texts.map(t => [t.getAttribute(at) - drop, parseFloat(t.textContent)])"
        ".filter(t => !isNaN(t[1]))",
        [at, drop],
    )
    (p, v), (q, w) = ticks[0], ticks[-1]
    return lambda pixel: v + (pixel - p) * (w - v) / (q - p)


def rows(download):
    return list(csv.reader(io.StringIO(download.path().read_text(encoding="utf-8-sig"))))


def test_the_curve_starts_at_the_accuracy_and_ends_at_the_largest_radius(visit, report, squares):
    page, curves = visit(report), gather([squares])
    path = page.locator(".chart path.line").get_attribute("d")
    x, y = scale(page, "x"), scale(page, "y")
    start, last = float(re.match(r"M[\d.]+ ([\d.]+)", path)[1]), float(re.findall(r"H([\d.]+)", path)[-1])
    assert y(start) == pytest.approx(100 * (curves[0].won >= 0).mean(), abs=0.3)
    assert x(last) == pytest.approx(curves[0].won.max(), rel=1e-3)


def test_the_cursor_reads_the_curve_with_keys_alone(visit, report, squares):
    page, won = visit(report), gather([squares])[0].won
    page.locator(".chart > svg").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    text = page.locator(".readout").inner_text()
    radius, share = float(re.search(r"than ([\d.]+)", text)[1]), float(re.search(r"([\d.]+)\s%", text)[1])
    assert radius > 0
    assert page.locator(".readout").bounding_box()["height"] < 100
    assert min(abs(100 * (won >= radius + d).mean() - share) for d in (-5e-4, 0, 5e-4)) < 0.06


def test_zoom_narrows_the_axis_and_comes_back(visit, report):
    page = visit(report)
    labels = page.locator(".chart svg text[text-anchor=middle]")
    span = labels.all_text_contents()
    page.locator(".chart").scroll_into_view_if_needed()
    box = page.locator(".chart > svg").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 150, steps=3)
    page.mouse.up()
    inside = [float(t) for t in labels.all_text_contents() if t[0].isdigit()]
    assert inside[0] > 0
    assert inside[-1] < float(span[-2])
    page.get_by_role("button", name="Show all").click()
    assert labels.all_text_contents() == span


def test_a_method_that_is_ticked_is_drawn_and_tabled(visit, report):
    page = visit(report)
    assert page.locator(".chart path.line").count() == 1
    page.get_by_role("checkbox", name="mono").check()
    assert page.locator(".chart path.line").count() == 2
    assert page.locator("#curves tbody tr.upper").count() == 2


def test_filter_and_sort(visit, report, squares):
    page, certificates = visit(report), squares.certificates()
    wrong = sum(c.prediction not in (-1, label) for c, label in zip(certificates, squares.labels, strict=True))
    page.locator("[name=outcome]").select_option("wrong")
    assert page.locator("#inputs .count").inner_text() == f"{wrong} of 36 inputs"
    page.locator("[name=outcome]").select_option("")
    page.locator("[name=label]").select_option("2")
    assert page.locator("#inputs .count").inner_text() == "9 of 36 inputs"
    page.locator("[name=sort]").select_option("up")
    shown = [float(text) for text in page.locator(".tile b").all_inner_texts()]
    wanted = sorted(c.radius for c, label in zip(certificates, squares.labels, strict=True) if label == 2)
    assert all(0 <= radius - text < 1e-3 for text, radius in zip(shown, wanted, strict=True))  # rounded down
    page.locator("[name=least]").fill(f"{wanted[4]:.6f}")
    assert page.locator("#inputs .count").inner_text().startswith(("4 of", "5 of"))


def test_pages_turn(visit, report):
    page = visit(report)
    assert page.locator(".tile").count() == 30
    page.get_by_role("button", name="Next →").click()
    assert page.locator(".tile").count() == 6


def test_the_pictures_are_drawn(visit, report):
    page = visit(report)
    page.wait_for_function(
        "[...document.querySelectorAll('.tile canvas')]"
        ".every(c => c.getContext('2d').getImageData(0, 0, 8, 8).data.some(v => v > 0))"
    )
    assert page.locator(".tile canvas").count() == 60


def test_the_detail_opens_and_closes_by_keyboard(visit, report, squares):
    page = visit(report)
    page.locator(".tile").nth(5).focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog h2").inner_text() == f"Input 5: {printable(HOSTILE[1])}"
    votes = squares.tally.estimations[5]
    values = page.locator("dialog .bars").first.locator(".value").all_inner_texts()
    assert [int(v) for v in values] == sorted((v for v in votes.tolist() if v), reverse=True)
    page.keyboard.press("ArrowRight")
    assert page.locator("dialog h2").inner_text().startswith("Input 6")
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()


def test_the_inputs_a_method_wins_are_shown(visit, report, squares):
    page = visit(report)
    link = page.locator("#wins button.link").first
    number, method = link.inner_text(), link.locator("xpath=ancestor::tr/th").inner_text().strip()
    radii = {curve.method: np.array([c.radius for c in curve.certificates]) for curve in gather([squares])}
    others = np.max([r for name, r in radii.items() if name != method], axis=0)
    assert int(number) == (radii[method] > others + 1e-9).sum()
    link.click()
    assert page.locator("#inputs .count").inner_text().startswith(f"{number} of 36 inputs, won by {method}")


def test_class_names_are_text(visit, report):
    page = visit(report)
    assert "owned" not in page.title()
    assert page.locator("img, b:has-text('squares')").count() == 0
    assert page.locator("[name=label] option").all_text_contents() == ["all", *map(printable, HOSTILE)]


def test_csv_of_the_curves_and_the_inputs(visit, report, squares):
    page, won = visit(report), gather([squares])[0].won
    with page.expect_download() as download:
        page.locator(".chart").get_by_role("button", name="CSV").click()
    table = rows(download.value)
    assert table[0] == ["curve", "basis", "radius", "share of inputs"]
    assert all(float(share) == pytest.approx((won >= float(r)).mean()) for *_, r, share in table[1:])
    with page.expect_download() as download:
        page.get_by_role("button", name="These inputs as CSV").click()
    table = rows(download.value)
    assert len(table) == 37
    assert {row[1] for row in table[1:]} == {printable(name) if name[0] != "=" else "'" + name for name in HOSTILE}


def test_the_recipe_is_copied(visit, report, squares):
    page = visit(report)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy all of it").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert f"inputs fingerprint: {squares.plan.selection.inputs}" in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("width", [360, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_wide_and_narrow(visit, report, scheme, width):
    page = visit(report, color_scheme=scheme, viewport={"width": width, "height": 800})
    ink, paper = (
        sum(int(v) for v in re.findall(r"\d+", page.evaluate(f"getComputedStyle(document.body).{name}"))[:3])
        for name in ("color", "backgroundColor")
    )
    assert (ink < paper) == (scheme == "light")
    assert abs(ink - paper) > 400
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_is_dark_on_light_without_controls(visit, report):
    page = visit(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#inputs .controls").is_visible()
    assert page.locator(".chart path.line").is_visible()


def test_the_envelope_is_the_best_of_the_runs(visit, three):
    path, curves = three
    page = visit(path)
    assert page.locator(".chart path.envelope").count() == 1
    with page.expect_download() as download:
        page.locator(".chart").get_by_role("button", name="CSV").click()
    drawn = [(float(r), float(share)) for name, _, r, share in rows(download.value)[1:] if name == "upper envelope"]
    assert drawn
    assert all(share == pytest.approx(max((c.won >= r).mean() for c in curves)) for r, share in drawn)


def test_runs_on_other_inputs_are_shown_and_not_ranked(visit, log_run, tmp_path):
    runs = [log_run(0.25, [(0, 0, 0.5), (1, 1, 0.2)]), log_run(0.5, [(0, 0, 0.6), (2, 2, 0.4)])]
    page = visit(write_report(runs, tmp_path / "two.html")[0])
    assert page.locator(".chart path.line").count() == 2
    assert page.locator(".chart path.envelope").count() == 0
    assert page.locator(".legend").inner_text().count("envelope") == 0
    assert page.locator("#curves tbody b").count() == 0
    assert "they are not compared" in page.locator(".facts").inner_text()
    assert page.locator("h1").inner_text().startswith("1 of 2 inputs")


def test_a_published_table_lies_over_the_curves_as_points(visit, three, tmp_path):
    runs = [c.run for c in three[1]]
    page = visit(write_report(runs, tmp_path / "over.html", baseline="cohen-cifar10", radii=["0.25", "0.5", "0.6"])[0])
    points = page.locator(".chart circle.published")
    assert points.count() == 1 + 3 + 6 + 6
    assert points.locator("title").first.text_content() == "Cohen et al. 2019, σ = 0.12: 59.0\u00a0% at 0.25"
    x, y = scale(page, "x"), scale(page, "y")
    assert x(float(points.first.get_attribute("cx"))) == pytest.approx(0.25)
    assert y(float(points.first.get_attribute("cy"))) == pytest.approx(59)
    row = page.locator("tr.published", has_text="σ = 0.25").inner_text().split("\t")
    assert row[2:5] == ["60.0\u00a0%", "43.0\u00a0%", ""]
    assert page.locator("tr.published b").count() == 0
    assert "1902.02918" in page.locator(".facts").inner_text()


def test_the_distribution_of_the_top_class_stands_beside_the_average(visit, report, squares):
    page = visit(report)
    top = squares.tally.estimations.max(axis=1) / squares.tally.estimations.sum(axis=1)
    assert f"median {np.median(top):.3f}" in page.locator(".histogram svg").text_content()
    heights = page.locator(".histogram .bin").evaluate_all("bins => bins.map(b => +b.getAttribute('height'))")
    counts = np.histogram(top, bins=20, range=(0, 1))[0]
    np.testing.assert_allclose(np.array(heights) / max(heights), counts / counts.max(), atol=1e-6)
    assert "2410.06895" in page.locator(".spread").inner_text()


def test_radii_alone_make_a_page(visit, three):
    page = visit(three[0])
    assert not page.locator("#example").is_visible()
    assert page.locator(".tile canvas, .tile .bars").count() == 0
    assert page.locator("#curves tbody tr.upper").count() == 3


def test_two_runs_link_to_the_inputs_that_differ(visit, log_run, tmp_path):
    runs = [
        log_run(0.25, [(0, 0, 0.5), (1, 1, 0.2), (2, 2, 0.3)]),
        log_run(0.5, [(0, 0, 0.1), (1, 1, 0.6), (2, 2, 0.4)]),
    ]
    page = visit(write_report(runs, tmp_path / "two.html")[0])
    first = page.locator("#paired tbody tr").first
    assert first.inner_text().split("\t")[1:3] == ["1", "2"]
    first.locator("button").nth(1).click()
    assert page.locator("#inputs .count").inner_text().startswith("2 of 3 inputs")


def test_estimated_curves_are_off_until_asked_for_and_dashed(visit, squares, tmp_path):
    proved, *_ = gather([squares], ["mono", "cpm"])
    guess = [dataclasses.replace(c, basis=ESTIMATED, radius=2 * c.radius) for c in proved.certificates]
    estimated = dataclasses.replace(proved, name="a guess", certificates=guess)
    path = tmp_path / "estimated.html"
    path.write_text(build_page(Contents([proved, estimated], np.array([0.25, 0.5]))), encoding="utf-8")
    page = visit(path)
    assert page.locator(".chart path.line").count() == 1
    page.get_by_role("checkbox", name="a guess").check()
    dashes = page.locator(".chart path.line").evaluate_all(
        "lines => lines.map(l => getComputedStyle(l).strokeDasharray)"
    )
    assert dashes[0] == "none"
    assert dashes[1] != "none"
    assert page.locator("#curves .scroll table").count() == 2
