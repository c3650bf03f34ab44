"""The paper's figures, tables and claims, one file each (behind `smoothcert reproduce`)."""

from collections.abc import Callable

from smoothcert.experiments.confidence import confidence
from smoothcert.experiments.counter_example import reproduce_counter_example
from smoothcert.experiments.gap import gap
from smoothcert.experiments.linear_product import linear_product
from smoothcert.experiments.lipschitz_table import lipschitz_table
from smoothcert.experiments.radii_figure import radii_figure
from smoothcert.experiments.reproduction import Result, Stage

CLAIMS: dict[str, Callable[[Stage], Result]] = {
    "radii": radii_figure,
    "confidence": confidence,
    "gap": gap,
    "lipschitz-table": lipschitz_table,
    "linear-product": linear_product,
    "counter-example": reproduce_counter_example,
}
