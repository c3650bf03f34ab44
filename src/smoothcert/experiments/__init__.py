"""The paper's figures, tables and claims, one file each (behind `smoothcert reproduce`)."""
