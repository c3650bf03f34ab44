"""The page as a file."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.squares import Squares, nearest
from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError
from smoothcert.report.contents import Contents
from smoothcert.report.curves import gather, table_radii
from smoothcert.report.page import build_page, embed, headline, printable
from smoothcert.report.write import write_report


@given(
    st.recursive(
        st.text() | st.floats(allow_nan=False, allow_infinity=False),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_embedded_data_is_inert_and_comes_back(value):
    text = embed(value)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


@given(st.text())
def test_what_is_shown_has_no_controls_and_no_change_of_direction(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert printable(shown) == shown


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_hostile_names_add_no_element_and_nothing_is_loaded(squares):
    curves = gather([squares])
    elements = Elements(build_page(Contents(curves, table_radii(curves)))).found
    assert [tag for tag, _ in elements].count("script") == 2
    assert not {"b", "img", "link", "iframe"} & {tag for tag, _ in elements}
    assert not any({"src", "onerror", "onload"} & set(attributes) for _, attributes in elements)
    policy = next(a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_headline_counts_what_was_certified(squares):
    curves = gather([squares])
    title, facts = headline(Contents(curves, table_radii(curves)), None)
    share, at = re.fullmatch(r"([\d.]+)\s% of the inputs .* smaller than ([\d.]+) can alter it\.", title).groups()
    count = int((curves[0].won >= float(at)).sum())
    assert float(share) == pytest.approx(100 * count / 36, abs=0.05)
    assert f"{count} of 36 inputs" in facts[0]
    assert "at most 1 in 1,000" in facts[0]


def test_an_adaptive_run_is_shown_by_its_own_rule_at_the_radii_it_was_asked_for(tmp_path):
    smoothed = SmoothedClassifier(nearest, sigma=0.6, num_classes=4, batch=100, seed=0)
    run = smoothed.certify_dataset(Squares(), out=tmp_path / "r", radii=[0.2, 0.4], max_n=500)
    (curve,) = gather([run])
    assert table_radii([curve]).tolist() == [0.2, 0.4]
    assert set(curve.won.tolist()) <= {-1.0, 0.2, 0.4}
    assert curve.draws == run.draws


def test_a_run_that_certifies_nothing_says_so(log_run):
    curves = gather([log_run(0.25, [(0, -1, 0.0), (1, 0, 0.3)])])
    assert headline(Contents(curves, np.array([0.25])), None)[0].startswith("No input")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "docx"}, "unknown format"),
        ({"rho": 0.0}, "rho"),
        ({"radii": ["0.25", "x"]}, "positive numbers"),
        ({"names": ["a", "b"]}, "each run one name"),
        ({"methods": ["magic"]}, "unknown method"),
        ({"estimated": True}, "certify with `lipschitz` local"),
    ],
)
def test_a_wrong_call_says_what_to_do_and_writes_nothing(squares, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        write_report([squares], tmp_path / "report.html", **change)
    assert not list(tmp_path.iterdir())
