"""smoothcert lipschitz: the table by layer, the product three ways, the search near inputs."""

import pytest
from typer.testing import CliRunner

from smoothcert import InputError
from smoothcert.cli import app


def run(*arguments):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["lipschitz", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_layers_three_products_and_a_search():
    text = run("digits_cnn", "digits", "--limit", "3", "--device", "cpu")
    constants = [float(line.split()[-2]) for line in text.splitlines() if "product, " in line or "local, " in line]
    fourier, gram, power, mean, largest = constants
    assert power <= fourier * 1.001
    assert gram == pytest.approx(fourier, rel=0.01)
    assert 0 < mean <= largest <= fourier
    assert sum("Conv2d" in line for line in text.splitlines()) == 2
    assert [line.split("│")[2].strip() for line in text.splitlines() if "product, " in line or "local, " in line] == [
        "proved",
        "proved",
        "estimated",
        "estimated",
        "estimated",
    ]
    assert max(map(len, text.splitlines())) <= 80


def test_a_layer_that_shrinks_has_no_share(tmp_path, monkeypatch):
    factory = "import torch\ndef halves():\n    net = torch.nn.Linear(4, 4)\n    torch.nn.init.eye_(net.weight)\n"
    (tmp_path / "shrinking.py").write_text(factory + "    net.weight.data /= 2\n    return net\n")
    monkeypatch.chdir(tmp_path)
    text = run("shrinking:halves", "--shape", "4", "--device", "cpu")
    assert "shrinks" in text
    assert "-" not in text.split("Constant of")[0].replace("─", "")


@pytest.mark.slow
def test_a_design_that_knows_its_bound_is_looked_into():
    text = run("liresnet", "--shape", "3,32,32", "--device", "cpu")
    assert "the design's own" in text
    assert sum("MinMax" in line for line in text.splitlines()) > 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digits_cnn"], "pass --shape such as 3,32,32, or give data"),
        (["digits_cnn", "--shape", "one"], "'one' is no shape such as 3,32,32"),
        (["digits_cnn", "--shape", "3,8,8"], "does not fit"),
        (["model.onnx", "--shape", "1,4,4"], "layers of a torch module"),
    ],
)
def test_bad_calls_get_a_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        run(*arguments)
