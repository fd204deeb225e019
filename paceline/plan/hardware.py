"""What machines can do, from their makers' data sheets: a roofline, not a promise.

`plan` multiplies by `EFFICIENCY`, what good kernels reach of it; a doctor's measurement replaces both.
"""

from __future__ import annotations

from dataclasses import dataclass

EFFICIENCY = 0.75  # of bandwidth and arithmetic, in well-made decoding kernels


@dataclass(frozen=True, slots=True)
class Hardware:
    """Bytes and operations per second; `operations` counts a multiply and an add as two, at 16 bits.

    `step_seconds` is what a forward costs beside its arithmetic: launches, synchronisation.
    """

    name: str
    bytes_per_second: float
    operations: float
    memory_bytes: float
    step_seconds: float
    source: str


HARDWARE = {
    machine.name: machine
    for machine in (
        Hardware("a100", 2.039e12, 312e12, 80e9, 5e-4, "NVIDIA A100 80GB SXM data sheet, dense BF16"),
        Hardware("h100", 3.35e12, 989e12, 80e9, 5e-4, "NVIDIA H100 SXM data sheet, dense BF16"),
        Hardware("h200", 4.8e12, 989e12, 141e9, 5e-4, "NVIDIA H200 SXM data sheet, dense BF16"),
        Hardware("l40s", 0.864e12, 362e12, 48e9, 5e-4, "NVIDIA L40S data sheet, dense BF16"),
        Hardware("b200", 8.0e12, 2250e12, 180e9, 5e-4, "NVIDIA HGX B200 data sheet, dense BF16"),
        Hardware("mi300x", 5.3e12, 1307e12, 192e9, 5e-4, "AMD Instinct MI300X data sheet, dense BF16"),
        Hardware("5090", 1.792e12, 209e12, 32e9, 5e-4, "NVIDIA Blackwell whitepaper, dense FP16"),
        Hardware("5080", 0.96e12, 113e12, 16e9, 5e-4, "NVIDIA Blackwell whitepaper, dense FP16"),
        Hardware("4090", 1.008e12, 165e12, 24e9, 5e-4, "NVIDIA Ada whitepaper, dense BF16 with FP32 accumulation"),
        Hardware("3090", 0.936e12, 71e12, 24e9, 5e-4, "NVIDIA Ampere GA102 whitepaper, dense BF16"),
        Hardware("m2-ultra", 0.8e12, 27e12, 192e9, 3e-4, "Apple: 800 GB/s, 27.2 TFLOPS FP32 GPU"),
        Hardware("m3-max", 0.4e12, 14e12, 128e9, 3e-4, "Apple: 400 GB/s, about 14 TFLOPS FP32 GPU"),
        Hardware("m4-max", 0.546e12, 18e12, 128e9, 3e-4, "Apple: 546 GB/s, about 18 TFLOPS FP32 GPU"),
        Hardware("epyc-9965", 0.576e12, 27e12, 768e9, 1e-4, "AMD: 12 channels DDR5-6000; 192 cores AVX-512 at 2.2 GHz"),
        Hardware("ryzen-9950x", 0.09e12, 4.4e12, 96e9, 1e-4, "AMD: two channels DDR5-5600; 16 AVX-512 cores"),
        Hardware("epyc-9654", 0.46e12, 5.4e12, 768e9, 1e-4, "AMD: 12 channels DDR5-4800; 96 cores AVX-512 at 2.4 GHz"),
        Hardware("laptop", 0.068e12, 0.8e12, 32e9, 1e-4, "two channels DDR5-4267; eight AVX2 cores near 3 GHz"),
    )
}
