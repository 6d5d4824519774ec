import time

import numpy as np
import pytest

from optimum_cpp.stages import StageClock


def test_seconds_add_up_under_one_name() -> None:
    clock = StageClock()
    for _ in range(2):
        with clock.stage("a"):
            time.sleep(0.05)
    with clock.stage("b"):
        pass
    assert [stage.name for stage in clock.stages] == ["a", "b"]
    assert clock.stages[0].seconds >= 0.1 > clock.stages[1].seconds


def test_peak_memory_is_that_of_the_stage() -> None:
    clock = StageClock()
    with clock.stage("large"):
        block = np.ones(200 * 2**17)  # 200 MiB, touched
        del block
    with clock.stage("small"):
        pass
    large, small = (stage.peak_memory_mib for stage in clock.stages)
    assert large > 200
    if small == large:
        pytest.skip("this system does not let a process reset its peak")
    assert large - small > 150


def test_a_stage_that_fails_is_not_recorded() -> None:
    clock = StageClock()
    with pytest.raises(RuntimeError), clock.stage("a"):
        raise RuntimeError
    assert clock.stages == []
