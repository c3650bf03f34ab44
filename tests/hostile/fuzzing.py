"""Hostile files, and a child process that reads them with little memory and little time.

A reader survives an input when it returns, or refuses it with one sentence, in a process that lives on, having run
nothing from the file and written nothing but what it was asked for.
"""

import multiprocessing
import random
import resource
import shutil
import traceback
from pathlib import Path
from unicodedata import bidirectional, category

from smoothcert import InputError, RunError
from survived import SURVIVED

MEMORY = 1 << 30
SECONDS = 240
NUMBERS = [
    value.to_bytes(size, order, signed=True)
    for size in (1, 2, 4, 8)
    for order in ("little", "big")
    for value in (0, 1, -1, 1 << (8 * size - 2), (1 << (8 * size - 1)) - 1, -(1 << (8 * size - 1)))
]


def mutated(content, chance):
    """The content with one to four changes: bits, bytes and numbers replaced, parts cut out, repeated or put in."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        at = chance.randrange(len(changed) + 1)
        some = chance.choice([1, 2, 4, 16, 256])
        match chance.randrange(7):
            case 0:
                changed[at : at + 1] = bytes(byte ^ (1 << chance.randrange(8)) for byte in changed[at : at + 1])
            case 1:
                changed[at : at + 1] = chance.randbytes(1)
            case 2:
                number = chance.choice(NUMBERS)
                changed[at : at + len(number)] = number
            case 3:
                del changed[at:]
            case 4:
                del changed[at : at + some]
            case 5:
                changed[at:at] = chance.randbytes(some)
            case 6:
                changed[at:at] = changed[at : at + some]
    return bytes(changed)


class Patient:
    """Reads what it is given in a child process, which is replaced when it dies."""

    def __init__(self):
        self.process = None

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()  # it has imported what it needs

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None

    def read(self, reader, folder):
        """What the reader said of the folder it was given: a sentence where it refused, None where it did not."""
        if self.process is None:
            self.start()
        self.pipe.send((reader, folder))
        try:
            assert self.pipe.poll(SECONDS), f"{reader.__name__} hangs on {folder}"
            refusal, fault = self.pipe.recv()
        except (AssertionError, EOFError, ConnectionResetError) as error:
            self.stop()
            raise AssertionError(f"{reader.__name__} died on {folder}: {error!r}") from None
        assert fault is None, f"{reader.__name__} on {folder}:\n{fault}"
        return refusal

    def survives(self, reader, folder, content, name):
        """Reads a file of that name and content, alone in a folder, and checks that nothing else came into being."""
        shutil.rmtree(folder, ignore_errors=True)
        path = folder / "in" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        refusal = self.read(reader, folder)
        assert {entry.name for entry in folder.iterdir()} <= {"in", "out"}
        assert [entry for entry in (folder / "in").rglob("*") if entry.is_file()] == [path]
        assert path.read_bytes() == content
        SURVIVED[f"hostile files ({reader.__name__.removeprefix('read_').replace('_', ' ')})"] += 1
        return refusal


def fuzz(patient, reader, folder, content, name, times, seed):
    """How many of so many changed files were refused."""
    chance = random.Random(seed)
    return sum(patient.survives(reader, folder, mutated(content, chance), name) is not None for _ in range(times))


def is_one_sentence(message):
    return is_harmless(message) and message.endswith(".") and len(message) <= 1000


def is_harmless(text):
    """No control characters, no halves of characters, no line ends, nothing that turns the direction of writing."""
    kinds, directions = ("Cc", "Cs", "Zl", "Zp"), ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    return not any(category(c) in kinds or bidirectional(c) in directions for c in text)


def _serve(pipe):
    import hostile.readers  # noqa: F401  (what it imports is not counted as memory for reading)

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    pipe.send("ready")
    while True:
        reader, folder = pipe.recv()
        try:
            reader(folder)
            pipe.send((None, None))
        except (InputError, RunError) as error:
            wrong = None if is_one_sentence(str(error)) else f"not one sentence: {str(error)!r}"
            pipe.send((str(error), wrong))
        except BaseException:
            pipe.send((None, traceback.format_exc()))
