"""Weights in the layouts people have them in are loaded whole, or not at all."""

import io
import math
import os
import pickle
import pickletools
import tarfile
import time
import warnings
from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from smoothcert import models
from smoothcert.errors import InputError
from smoothcert.models import load_weights
from smoothcert.models.torch_files import open_torch_file


def network(seed, name="cifar_resnet20"):
    torch.manual_seed(seed)
    return models.build(name)


def copied(model):
    return OrderedDict((key, value.clone()) for key, value in model.state_dict().items())


def renamed(state, old, new):
    return OrderedDict((key.replace(old, new, 1), value) for key, value in state.items())


def assert_same(first, second):
    assert list(first) == list(second)
    for key, value in first.items():
        torch.testing.assert_close(value, second[key], rtol=0, atol=0)


def assert_refused(path, message, model=None):
    """One line, no warning beside it, and the model as it was."""
    model = model or network(1)
    before = copied(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=message) as caught:
            load_weights(model, path)
    assert "\n" not in str(caught.value)
    assert_same(before, model.state_dict())


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before PyTorch 1.6"])
def test_cohens_cifar_checkpoint(tmp_path, zipped):
    source, target = network(0, "cifar_resnet110"), network(1, "cifar_resnet110")
    optimizer = torch.optim.SGD(source.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    source(torch.rand(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    checkpoint = {
        "epoch": 90,
        "arch": "cifar_resnet110",
        "state_dict": source.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(checkpoint, tmp_path / "checkpoint.pth.tar", _use_new_zipfile_serialization=zipped)
    load_weights(target, tmp_path / "checkpoint.pth.tar")
    assert_same(source.state_dict(), target.state_dict())


def test_cohens_imagenet_checkpoint_from_data_parallel(tmp_path):
    source, target = network(0, "resnet50"), network(1, "resnet50")
    wrapped = nn.Sequential(source[0], nn.DataParallel(source[1]))
    assert all(key.startswith("1.module.") for key in wrapped.state_dict())
    checkpoint = {"epoch": 90, "arch": "resnet50", "state_dict": wrapped.state_dict(), "optimizer": {}}
    torch.save(checkpoint, tmp_path / "checkpoint.pth.tar")
    load_weights(target, tmp_path / "checkpoint.pth.tar")
    assert_same(source.state_dict(), target.state_dict())


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".tar", ".safetensors"])
@pytest.mark.parametrize(
    "layout",
    [
        lambda state: state,
        lambda state: renamed(state, "1.", "module.1."),
        lambda state: renamed(state, "1.", "1.module."),
        lambda state: renamed(state, "1.", ""),
        lambda state: renamed(state, "1.", "module."),
    ],
    ids=["own", "module.1.", "1.module.", "bare", "module."],
)
def test_each_naming_in_each_format(tmp_path, suffix, layout):
    source, target = network(0), network(1)
    path = tmp_path / f"weights{suffix}"
    state = layout(copied(source))
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    load_weights(target, str(path))
    assert_same(source.state_dict(), target.state_dict())


def test_a_module_whose_own_names_contain_module(tmp_path):
    source = nn.DataParallel(network(0))
    torch.save(source.state_dict(), tmp_path / "w.pt")
    target = nn.DataParallel(network(1))
    load_weights(target, tmp_path / "w.pt")
    assert_same(source.state_dict(), target.state_dict())


def test_counters_of_batches_may_be_absent_or_superfluous(tmp_path):
    source, target = network(0), network(1)
    target[1].bn1.num_batches_tracked.fill_(5)
    without = {k: v for k, v in copied(source).items() if not k.endswith("num_batches_tracked")}
    torch.save(without, tmp_path / "old.pth")
    load_weights(target, tmp_path / "old.pth")
    assert_same(without, {k: v for k, v in target.state_dict().items() if k in without})
    assert int(target[1].bn1.num_batches_tracked) == 5

    untracked = nn.Sequential(nn.Conv2d(1, 2, 3))
    state = {**copied(untracked), "0.num_batches_tracked": torch.tensor(3)}
    torch.save(state, tmp_path / "new.pth")
    load_weights(untracked, tmp_path / "new.pth")


def test_half_precision_weights_become_the_models_own_type(tmp_path):
    source, target = network(0), network(1)
    torch.save({k: v.half() if v.is_floating_point() else v for k, v in copied(source).items()}, tmp_path / "h.pt")
    load_weights(target, tmp_path / "h.pt")
    assert target[1].fc.weight.dtype == torch.float32
    torch.testing.assert_close(target[1].fc.weight, source[1].fc.weight.half().float(), rtol=0, atol=0)


def test_keys_that_do_not_fit_are_named_by_kind(tmp_path):
    state = copied(network(0))
    del state["1.conv1.weight"]
    state["1.extra.weight"] = torch.zeros(1)
    state["1.fc.weight"] = torch.zeros(100, 64)
    torch.save(state, tmp_path / "w.pt")
    assert_refused(
        tmp_path / "w.pt",
        r"w\.pt do not fit the model: missing: 1\.conv1\.weight; unexpected: 1\.extra\.weight; "
        r"of another shape: 1\.fc\.weight 100×64 instead of 10×64\.$",
    )


def test_many_keys_are_cut_to_five(tmp_path):
    torch.save(network(0, "cifar_resnet32").state_dict(), tmp_path / "w.pt")
    # Two more blocks in each of three stages: 6 · 2 · (1 convolution + 4 of batch normalisation) = 60 keys.
    assert_refused(tmp_path / "w.pt", r"unexpected: (1\.layer1\.3\S+ ){5}and 55 more\.$")


@pytest.mark.parametrize("other", ["cifar_resnet32", "cifar_small", "resnet50"])
def test_weights_of_another_built_in_architecture_are_called_so(tmp_path, other):
    torch.save({"state_dict": torch.nn.DataParallel(models.build(other)).state_dict()}, tmp_path / "w.pth.tar")
    with pytest.raises(InputError, match=rf"are those of {other}, not of cifar_resnet20: name that one"):
        models.load_model("cifar_resnet20", weights=tmp_path / "w.pth.tar")


def test_weights_of_another_architecture_name_keys_of_the_nearest_naming(tmp_path):
    state = renamed(copied(network(0)), "1.", "1.module.")
    del state["1.module.fc.bias"]
    torch.save(state, tmp_path / "w.pt")
    assert_refused(tmp_path / "w.pt", r"missing: 1\.fc\.bias\.$")


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["zip", "legacy", "pickle2", "pickle5"])
def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path, name):
    content = {"state_dict": Payload(tmp_path / "executed")}
    path = tmp_path / f"{name}.pt"
    if name.startswith("pickle"):
        path.write_bytes(pickle.dumps(content, protocol=int(name[-1])))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=name == "zip")
    assert_refused(path, r"was refused because .* nothing in it was executed: save the model's state_dict\(\)")
    assert not (tmp_path / "executed").exists()


def write_pickle(path, content):
    """As torch.save packs it, or bare."""
    if path.suffix == ".pt":
        writer = torch._C.PyTorchFileWriter(str(path))
        writer.write_record("data.pkl", content, len(content))
        writer.write_end_of_file()
    else:
        path.write_bytes(content)


REFUSED = "was refused because it holds more|holds no state dict|no checkpoint|do not fit|are the most|takes more steps"
SET = b"c__builtin__\nset\nq\x01"


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
@pytest.mark.parametrize(
    "content",
    [
        b"c__builtin__\nbytearray\n\x8a\x08" + (1 << 44).to_bytes(8, "little") + b"\x85R.",
        b"c_codecs\nencode\nX\x02\x00\x00\x00aaX\x03\x00\x00\x00hex\x86R.",
        b"}" + b"K\x01" + b"q\x00h\x00\x86" * 200 + b"Ns.",
        b"](" + b"N" * 100_000 + b"tq\x00" + SET + b"h\x01h\x00\x85R" * 100_000 + b"e.",
        b"]q\x00" + SET + b"h\x00h\x01h\x00\x85Ra0" * 60_000 + b".",
        b"](" + b"N" * 600_000 + b"e.",
        b"}("
        + b"".join(b"\x8a\x0a" + (k * (2**61 - 1)).to_bytes(10, "little") + b"N" for k in range(8, 20_000))
        + b"u.",
    ],
    ids=["number", "text", "key", "copies", "growth", "length", "keys of one hash"],
)
def test_a_small_file_that_asks_for_much_is_refused_at_once(tmp_path, content, suffix):
    """Each would take gigabytes or minutes, or have no end, of what torch calls safe."""
    write_pickle(tmp_path / f"w{suffix}", b"\x80\x02" + content)
    began = time.process_time()
    assert_refused(tmp_path / f"w{suffix}", REFUSED, nn.Linear(1, 1))
    assert time.process_time() - began < 10


@dataclass
class Stored:
    """A storage of float32."""

    key: str
    count: int


class Call:
    def __init__(self, what, *given):
        self.what, self.given = what, given

    def __reduce__(self):
        return self.what, self.given


class Written(pickle.Pickler):
    def persistent_id(self, value):
        return ("storage", torch.FloatStorage, value.key, "cpu", value.count) if isinstance(value, Stored) else None


def tensor(stored, shape, strides, offset=0):
    return Call(torch._utils._rebuild_tensor_v2, stored, offset, shape, strides, False, OrderedDict())


def packed(path, content, **records):
    """As torch.save packs it, whatever it is."""
    text = io.BytesIO()
    Written(text, protocol=2).dump(content)
    writer = torch._C.PyTorchFileWriter(str(path))
    writer.write_record("data.pkl", text.getvalue(), len(text.getvalue()))
    for name, record in records.items():
        writer.write_record(f"data/{name}", record, len(record))
    writer.write_end_of_file()


ENDLESS = tensor(Stored("a", 1), (20_000_000,), (0,))
ONE = tensor(Stored("a", 1), (1, 1), (1, 1))


@pytest.mark.parametrize(
    "beside",
    [
        *(Call(what, ENDLESS) for what in (set, Counter, torch.Size, OrderedDict)),
        {math.ldexp(1.0, 61 * k): None for k in range(-16, 16)} | {(math.ldexp(1.0, 61 * k),): k for k in range(16)},
        {reduce(lambda inner, _: (inner,), range(900), ()): None},
        Call(torch._utils._rebuild_qtensor, *("a", 0, (1,), (1,)), (torch.per_channel_affine, ENDLESS, ENDLESS, 0)),
        [b"bytes", bytearray(b"bytes"), 2**70, 3 + 4j],
    ],
    ids=["set", "Counter", "Size", "OrderedDict", "numbers of one hash", "a deep key", "scales", "bytes"],
)
def test_what_lies_beside_the_weights_is_neither_made_nor_hashed(tmp_path, beside):
    packed(tmp_path / "w.pt", {"state_dict": {"weight": ONE}, "beside": beside}, a=np.float32(3).tobytes())
    layer = nn.Linear(1, 1, bias=False)
    load_weights(layer, tmp_path / "w.pt")
    assert layer.weight.item() == 3.0


@pytest.mark.parametrize(
    "state",
    [
        {"weight": ENDLESS},
        {"weight": tensor(Stored("a", 1), (1, 2), (1, 1))},
        {"weight": tensor(Stored("a", 1), (1, 1), (1, 1), 1)},
        {"weight": tensor(Stored("a", 1), (1, 1), (-1, 1))},
        {"weight": tensor(Stored("a", 1), (1,) * 99, (1,) * 99)},
        {"weight": tensor(Stored("a", 1), (1 << 61, 1 << 61), (0, 0))},
        {"weight": tensor(Stored("a", 1 << 40), (1, 1), (1, 1))},
        {"weight": tensor(Stored("A", 1), (1, 1), (1, 1))},
        {"weight": ONE, "bias": tensor(Stored("a", 2), (1,), (1,))},
        {"weight": ONE, 1: ONE},
        {f"weight {k}": ONE for k in range(60_000)},
    ],
    ids=[
        *("another shape", "beyond its storage", "behind it", "backwards", "99 axes", "more than can be counted"),
        *("a storage that is not there", "a name in another case", "two lengths", "a number as a name", "many names"),
    ],
)
def test_tensors_that_are_not_in_the_file_are_refused(tmp_path, state):
    packed(tmp_path / "w.pt", {"state_dict": state}, a=np.float32(3).tobytes())
    assert_refused(tmp_path / "w.pt", REFUSED, nn.Linear(1, 1, bias=False))


@pytest.mark.parametrize("type", [torch.complex64, torch.uint16, torch.float8_e4m3fn, torch.bits8])
def test_weights_of_types_that_no_network_computes_in_are_refused(tmp_path, type):
    torch.save({"weight": torch.empty(1, 1, dtype=type)}, tmp_path / "w.pt")
    assert_refused(tmp_path / "w.pt", "holds no state dict", nn.Linear(1, 1, bias=False))


def test_an_old_file_without_its_numbers_is_refused(tmp_path):
    """torch fills such weights with what the memory held."""
    torch.save(nn.Linear(3, 3).state_dict(), tmp_path / "w.pt", _use_new_zipfile_serialization=False)
    with (tmp_path / "w.pt").open("rb") as file:
        for _ in range(4):
            list(pickletools.genops(file))
        end = file.tell()
    (tmp_path / "w.pt").write_bytes((tmp_path / "w.pt").read_bytes()[:end] + pickle.dumps([], protocol=2))
    assert_refused(tmp_path / "w.pt", "is cut off", nn.Linear(3, 3))


def test_an_archive_of_pythons_tape_archiver_is_refused(tmp_path):
    """In a tar file torch looks for weights of before 0.2, with a reader that takes hours over some headers."""
    with tarfile.open(tmp_path / "w.pt", "w") as archive:
        for name in ("N.N.N.N.N.", "storages", "tensors", "pickle"):
            archive.addfile(tarfile.TarInfo(name))
    assert_refused(tmp_path / "w.pt", REFUSED)


@pytest.mark.parametrize("protocol", [3, 4])
def test_other_protocols_are_refused(tmp_path, protocol):
    torch.save(network(0).state_dict(), tmp_path / "w.pt", pickle_protocol=protocol)
    assert_refused(tmp_path / "w.pt", "was refused")


def test_averaged_weights_and_those_under_model(tmp_path):
    source, target = network(0), network(1)
    averaged = torch.optim.swa_utils.AveragedModel(source)
    torch.save({"model": averaged.state_dict(), "args": {"lr": 0.1}}, tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert_same(source.state_dict(), target.state_dict())


def test_tensors_that_show_others_are_read_as_they_are(tmp_path):
    """Transposed, spread, cut out, of no numbers, parameters, and with attributes of their own."""
    whole = torch.arange(24.0).reshape(4, 6)
    state = {"turned": whole.T, "spread": whole[:1].expand(3, 6), "cut": whole[1:3, 2:5], "none": whole[:0]}
    state |= {"kept": nn.Parameter(whole), "half": whole.bfloat16(), "mask": whole > 3, "one": torch.tensor(7)}
    state["kept"].origin = "here"
    for zipped in (True, False):
        torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
        with open_torch_file(tmp_path / "w.pt") as file:
            found = file.tensors(file.content)
        assert_same({name: value.detach() for name, value in state.items()}, found)


@pytest.mark.parametrize("zipped", [True, False])
def test_plain_values_beside_the_weights_are_read(tmp_path, zipped):
    """Schedules, histories and types as training programs keep them, and tensors that entries share."""
    source, target = network(0), network(1)
    state, optimizer = copied(source), torch.optim.AdamW(source.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 30, 60])  # keeps a Counter
    beside = [0.1] * 9999, {1, 2}, 3 + 4j, torch.Size([2, 3]), torch.float16, torch.device("cpu"), torch.get_rng_state()
    names = [f"accuracy of the {kind} network on the validation set" for kind in ("plain", "smoothed")]
    history = (
        [dict.fromkeys(names, epoch % 100) for epoch in range(5_000)],
        [dict(state)] * 50,
        [dict(state) for _ in range(50)],
    )
    content = {"best": state, "state_dict": state, "schedule": schedule.state_dict(), "beside": beside, "copy": state}
    content |= {"history": history, "many": [torch.zeros(4) for _ in range(10_000)], "steps": list(range(200_000))}
    torch.save(content, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    load_weights(target, tmp_path / "w.pt")
    assert_same(state, target.state_dict())


def test_weights_saved_on_a_gpu_long_ago_are_known(tmp_path):
    """The storages of their time have names of their own."""
    torch.save(network(0).state_dict(), tmp_path / "w.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "w.pt").read_bytes()
    assert b"ctorch\nFloatStorage\n" in content
    (tmp_path / "w.pt").write_bytes(content.replace(b"ctorch\nFloatStorage\n", b"ctorch.cuda\nFloatStorage\n"))
    target = network(1)
    load_weights(target, tmp_path / "w.pt")
    assert_same(network(0).state_dict(), target.state_dict())


def test_a_whole_pickled_model_is_refused(tmp_path):
    torch.save(network(0), tmp_path / "w.pt")
    assert_refused(tmp_path / "w.pt", "was refused")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_file_cut_off_is_refused(tmp_path, zipped, share):
    path = tmp_path / "w.pt"
    torch.save(network(0).state_dict(), path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert_refused(path, r"w\.pt is cut off or is no checkpoint")


def test_safetensors_cut_off_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(copied(network(0)), path)
    path.write_bytes(path.read_bytes()[:-10])
    assert_refused(path, "is cut off or is no checkpoint")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all\n" * 9, b"\x00" * 100])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_other_files_are_refused(tmp_path, content, suffix):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert_refused(path, r"is cut off or is no checkpoint|was refused")


@pytest.mark.parametrize("content", [3, {}, [torch.zeros(1)], {"state_dict": 3}, {"epoch": 4, "w": torch.zeros(1)}])
def test_a_file_without_a_state_dict_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pt")
    assert_refused(tmp_path / "w.pt", "holds no state dict")


def test_a_torchscript_archive_is_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "w.pt")
    assert_refused(tmp_path / "w.pt", "is no checkpoint")


@pytest.mark.parametrize("name", ["absent.pt", "."])
def test_a_missing_file_is_named(tmp_path, name):
    assert_refused(tmp_path / name, "does not exist: check the path")


@pytest.mark.parametrize("zipped", [True, False])
def test_thousands_of_weights_beside_their_optimizer_load(tmp_path, zipped):
    layers = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(4000)))
    optimizer = torch.optim.Adam(layers.parameters())
    sum(parameter.sum() for parameter in layers.parameters()).backward()
    optimizer.step()
    content = {"optimizer": optimizer.state_dict(), "state_dict": layers.state_dict()}
    torch.save(content, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    other = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(4000)))
    load_weights(other, tmp_path / "w.pt")
    assert torch.equal(other[3999].weight, layers[3999].weight)
