"""The paper's figures, tables and claims, one file each (behind `smoothcert reproduce`)."""

from smoothcert.experiments.confidence import confidence, confidence_parts
from smoothcert.experiments.counter_example import reproduce_counter_example
from smoothcert.experiments.gap import gap, gap_parts
from smoothcert.experiments.linear_product import linear_product
from smoothcert.experiments.lipschitz_table import lipschitz_table, table_parts
from smoothcert.experiments.radii_figure import radii_figure
from smoothcert.experiments.reproduction import Claim

CLAIMS = {
    "radii": Claim(radii_figure),
    "confidence": Claim(confidence, confidence_parts),
    "gap": Claim(gap, gap_parts),
    "lipschitz-table": Claim(lipschitz_table, table_parts),
    "linear-product": Claim(linear_product),
    "counter-example": Claim(reproduce_counter_example),
}
