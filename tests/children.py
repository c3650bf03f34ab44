"""Processes that tests start, and stop in the middle."""

import multiprocessing
import os
import sys

from interruptible import listen_to_interrupts

PRELOADED = ["torch", "torch._functorch.aot_autograd", "pytest", "smoothcert.classifier", "smoothcert.store"]
"""The second is what torch.export imports when it is first called."""


def start(target, *args):
    """A child that has torch imported, so that what happens to it happens to its work and not to its imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=target, args=args)
    process.start()
    return process


class Command:
    """The command line in such a child, in this folder."""

    def __init__(self, folder, *arguments):
        reader, writer = multiprocessing.Pipe(duplex=False)
        self.process = start(_run, folder, arguments, writer)
        writer.close()
        self.said = os.fdopen(os.dup(reader.fileno()))

    def signal(self, number):
        os.kill(self.process.pid, number)

    def ended(self):
        """Its exit code, and what else it said."""
        with self.said:
            said = self.said.read()
        self.process.join(60)
        return self.process.exitcode, said


def _run(folder, arguments, writer):
    listen_to_interrupts()
    for stream in (sys.stdout, sys.stderr):
        os.dup2(writer.fileno(), stream.fileno())
    writer.close()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = ["smoothcert", *map(str, arguments)]

    from smoothcert.cli import main

    main()
