"""What this machine can do at best: bytes read and int8 products per second, with the threads the model uses."""

from __future__ import annotations

from paceline.bench.session import Progress, Session
from paceline.bench.stats import Spread, rounded
from paceline.core.aliases import Json
from paceline.kernels.native import native

LARGE = 512 << 20  # bytes: larger than the caches of most processors


def measure(session: Session, out: Json, progress: Progress) -> None:
    """Read a large buffer and one of the weights' size; a small model may live in a cache that reads faster."""
    repeats = 5 if session.plan.quick else 15
    probe = session.probe if session.probe.nbytes >= LARGE else native.ReadProbe(session.pool, LARGE)
    probe.read()
    session.read_weights_once()
    session.rates.clear()  # the first readings were the warm-up
    large: list[float] = []
    products: list[float] = []
    for repeat in range(repeats):
        progress.show("floor", repeat + 1, "of", repeats)
        own = session.read_weights_once()
        large.append(own if probe is session.probe else probe.nbytes / probe.read())
        products.append(native.dot_rate(session.pool, 0.02))
        session.products_per_second = max(products)
        out.update(
            threads=session.pool.threads,
            memory_bytes_per_second=Spread.of(large).to_json(),
            memory_buffer_bytes=probe.nbytes,
            weights_bytes_per_second=Spread.of(session.rates).to_json(),
            weights_buffer_bytes=session.probe.nbytes,
            int8_products_per_second=Spread.of(products).to_json() if max(products) > 0 else None,
            rows_at_which_arithmetic_binds=_balance(session),
        )


def _balance(session: Session) -> float | None:
    """Return M*, the rows whose arithmetic takes as long as reading the weights."""
    if session.products_per_second <= 0:
        return None
    seconds = session.model.weight_bytes / session.bytes_per_second
    return rounded(seconds * session.products_per_second / session.model.products(), 3)
