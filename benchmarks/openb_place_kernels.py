"""Compiled inner loops of placing tasks one after the other, each where the values of machines say that it costs least."""

from __future__ import annotations

import numpy as np

from flowsched.gpu.compiled import borrowing
from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import fits, take
from flowsched.gpu.shapes import ShapeArrays
from flowsched.gpu.value_kernels import AT_LEAST, DEAREST, ValueState, ValueTables, best_device, refresh

_ROUNDING = 1e-9


@borrowing
def in_steps(price: float, step: float) -> int:
    """A price, rounded."""
    return int(min(np.floor(price / step + 0.5), DEAREST - 1))


@borrowing
def price_place(
    m: int,
    s: int,
    under: int,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    tables: ValueTables,
    state: ValueState,
) -> None:
    """Price a machine for a task of shape s, on the device where it costs least, and keep it.

    From ``under`` steps on, the price is not worked out: it is kept that it is not less.
    """
    kind = state.row[m] - len(machines.cpu)
    if not fits(m, s, machines, shapes):
        state.price[s, m], state.device[s, m] = DEAREST, -1
    elif kind >= 0:
        if state.kind_price[s, kind] < 0:
            best, chosen = best_device(m, s, np.inf, machines, shapes, tables, state)
            state.kind_price[s, kind], state.kind_device[s, kind] = in_steps(best, tables.step), chosen
        state.price[s, m], state.device[s, m] = state.kind_price[s, kind], state.kind_device[s, kind]
    else:
        limit = (under - 0.5) * tables.step + _ROUNDING
        best, chosen = best_device(m, s, limit, machines, shapes, tables, state)
        if best == np.inf:
            state.price[s, m], state.device[s, m] = under, AT_LEAST
        else:
            state.price[s, m], state.device[s, m] = in_steps(best, tables.step), chosen


@borrowing
def cheapest(s: int, machines: DeviceArrays, shapes: ShapeArrays, tables: ValueTables, state: ValueState) -> int:
    """The machine with the lowest price among those that take a task of shape s, the first of equals; -1 for none."""
    best, chosen = DEAREST, -1
    prices, devices = state.price[s], state.device[s]
    # Prices that are known come first: the others need not be worked out where they are above.
    for m in range(len(prices)):
        if prices[m] < best and devices[m] != AT_LEAST:
            best, chosen = prices[m], m
    for m in range(len(prices)):
        if prices[m] > best or devices[m] != AT_LEAST:
            continue
        # Of equals the first wins.
        under = best + 1 if m < chosen else best
        if prices[m] < under:
            price_place(m, s, under, machines, shapes, tables, state)
            if prices[m] < under and devices[m] != AT_LEAST:
                best, chosen = prices[m], m
    return chosen


@borrowing
def place(
    s: int, machines: DeviceArrays, shapes: ShapeArrays, tables: ValueTables, state: ValueState
) -> tuple[int, int]:
    """Book a task of shape s where it costs least: machine and device, -1 and -1 where it fits nowhere."""
    m = cheapest(s, machines, shapes, tables, state)
    if m < 0:
        return -1, -1
    device = state.device[s, m]
    take(m, s, device, machines, shapes)
    refresh(m, machines, tables, state)
    return m, device
