"""How long a forward takes on a machine, from what it must read and compute.

The greater of bytes over bandwidth and operations over arithmetic, plus a fixed cost a forward (roofline, Williams et
al. 2009). M rows of one sequence and M sequences of one row read the weights once alike; keys are read per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.plan.hardware import EFFICIENCY, Hardware
from paceline.plan.shapes import Shape


@dataclass(frozen=True, slots=True)
class Run:
    """A model on a machine: how many bits a weight takes, and how long the sequences are."""

    shape: Shape
    hardware: Hardware
    bits: float = 16.0
    context: int = 1024

    @property
    def weight_bytes(self) -> float:
        """What the model takes in memory."""
        return self.shape.parameters * self.bits / 8

    def seconds(self, rows: int, sequences: int = 1) -> float:
        """Return the time of a forward of `rows` tokens in all, spread over `sequences`."""
        shape, machine = self.shape, self.hardware
        read = shape.read_parameters * self.bits / 8 + sequences * shape.kv_bytes(self.context)
        attention = 2 * shape.layers * shape.heads[0] * shape.head_dim * self.context
        operations = 2 * rows * (shape.read_parameters + attention)
        memory = read / (machine.bytes_per_second * EFFICIENCY)
        arithmetic = operations / (machine.operations * EFFICIENCY)
        return max(memory, arithmetic) + machine.step_seconds

    @property
    def rows_until_arithmetic(self) -> float:
        """Return how many rows a forward may have before arithmetic, not memory, sets its time."""
        machine = self.hardware
        return machine.operations / machine.bytes_per_second * self.bits / 16
