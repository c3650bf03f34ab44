"""Objects named on the command line as `package.module:name`."""

from __future__ import annotations

import importlib
import operator
import os
import sys
from typing import Any

from smoothcert.errors import InputError


def import_object(spec: str) -> Any:
    """The object `name` of `package.module:name`; the working directory is searched, as by `python -m`.

    >>> import_object("math:pi")
    3.141592653589793
    """
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise InputError(f"{spec!r} names no Python object: write it as package.module:name.")
    module = _import_module(module_name)
    try:
        return operator.attrgetter(name)(module)
    except AttributeError as error:
        raise InputError(f"The module {module_name} has no {name!r}: check the part after the colon.") from error


def _import_module(name: str) -> Any:
    # It stays on the path: a factory may import its neighbours only when it is called.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script without a main guard may also exit
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            message = f"There is no module {name}: run from the folder that holds it, or install it."
        else:
            cause = f"{type(error).__name__}: {error}"
            message = f"Importing {name} failed with {cause}; python -c 'import {name}' shows where."
        raise InputError(message) from error
