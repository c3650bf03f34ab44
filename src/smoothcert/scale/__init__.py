"""The same blocks on many machines: Ray workers draw them, the driver alone writes their votes."""
