"""What a notebook shows."""

from smoothcert import certify_counts
from smoothcert.summary import summarise
from smoothcert.text import radius_text


def test_a_certificate_shows_its_claim():
    certificate = certify_counts([98, 2, 0], [9900, 90, 10], sigma=0.5)
    html = certificate._repr_html_()
    assert f"shorter than <b>{radius_text(certificate.radius, 4)}</b>" in html
    assert "<td>0.001</td>" in html
    assert "abstained" in certify_counts([50, 50], [50, 50], sigma=0.5)._repr_html_()


def test_a_run_shows_its_accuracy(squares):
    html = squares._repr_html_()
    assert f"<td>{summarise(squares.certificates(), squares.labels, []).accuracy:.1%}</td>" in html
    assert html.count("<svg") == 1


def test_a_path_is_not_markup(squares, tmp_path):
    path = tmp_path / "<i>run.smoothcert"
    path.write_bytes(squares.path.read_bytes())
    assert "<i>" not in type(squares)(path)._repr_html_()
