"""Small problems use one thread, and nothing stays changed."""

import threading

import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_info

from plausiflow import Explainer
from plausiflow.core.threads import ROWS_WORTH_THREADS, suitable_threads


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_few_rows_have_one_thread_and_then_all_is_as_before():
    with suitable_threads([0] * (ROWS_WORTH_THREADS - 1)):
        assert torch.get_num_threads() == 1
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        with suitable_threads():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_many_rows_keep_the_threads():
    with suitable_threads(torch.zeros(ROWS_WORTH_THREADS, 2)):
        assert torch.get_num_threads() == 3


def test_an_error_inside_restores_them():
    with pytest.raises(ValueError, match="own"), suitable_threads():
        raise ValueError("own")
    assert torch.get_num_threads() == 3


def test_callers_that_overlap_leave_the_number_that_was_there_before_both():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with suitable_threads():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with suitable_threads():
        thread.start()
        assert inside.wait(10)
    leave.set()
    thread.join()
    assert torch.get_num_threads() == 3


def test_fit_explain_and_predict_use_one_thread_for_few_rows():
    seen = []

    def model(rows):
        seen.append(torch.get_num_threads())
        chance = 1 / (1 + (-0.3 * (rows["income"] - 20)).map(lambda v: 2.718281828**v))
        return pd.DataFrame({"no": 1 - chance, "yes": chance}).to_numpy()

    x = pd.DataFrame({"income": [float(37 * i % 41) for i in range(90)], "debt": [i % 7 for i in range(90)]})
    y = (x["income"] > 20).map({True: "yes", False: "no"})
    explainer = Explainer(model, confidence=None, judges=0).fit(x, y)
    explainer.explain(x.iloc[:2])
    explainer.predict(x.iloc[:2])
    assert set(seen) == {1}
    assert torch.get_num_threads() == 3
