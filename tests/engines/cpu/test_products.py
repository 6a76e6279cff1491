"""The library of each product: all compute the same, and the choice is measured once and kept."""

import json

import pytest
import torch
from compilers import needs_compiler

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu import products
from tutelage.engines.cpu.native import build
from tutelage.engines.cpu.products import Products

ALL_BLAS = Products.parse("blas")


@pytest.fixture(autouse=True)
def _chosen_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "folder", lambda: tmp_path / "cache")
    products.forget()
    yield
    monkeypatch.undo()
    products.forget()


@pytest.fixture
def unset(monkeypatch):
    """No choice by the environment."""
    monkeypatch.delenv(products.VARIABLE, raising=False)


@pytest.mark.parametrize("library", products.available())
@pytest.mark.parametrize(("rows", "features", "outs"), [(7, 33, 5), (60, 64, 200), (20, 32, products.WIDE + 3)])
def test_libraries_compute_the_same(library, rows, features, outs, monkeypatch):
    monkeypatch.setenv(products.VARIABLE, library)
    x, weight, grad, bias = (
        torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
        for shape in ((rows, features), (outs, features), (rows, outs), (outs,))
    )
    exact = [x.double() @ weight.double().T, grad.double() @ weight.double(), grad.double().T @ x.double()]
    found = [products.output(x, weight), products.input_gradient(grad, weight), products.weight_gradient(grad, x)]
    totals = [torch.randn_like(each) for each in found]
    added = [
        products.output(x, weight, bias, totals[0].clone()),
        products.input_gradient(grad, weight, totals[1].clone()),
        products.weight_gradient(grad, x, totals[2].clone()),
    ]
    shifted = [exact[0] + bias, *exact[1:]]
    for own, after, total, expected, moved in zip(found, added, totals, exact, shifted, strict=True):
        torch.testing.assert_close(own.double(), expected, rtol=0, atol=1e-3)
        torch.testing.assert_close(after.double(), total + moved, rtol=0, atol=1e-3)
    into = torch.full_like(weight, torch.nan)
    assert products.weight_gradient(grad, x, into, accumulate=False) is into, "in place"
    torch.testing.assert_close(into, found[2])
    into = torch.full_like(x, torch.nan)
    assert products.input_gradient(grad, weight, into, accumulate=False) is into
    torch.testing.assert_close(into, found[1])


def test_the_environment_names_a_library_for_all_or_for_some():
    assert Products.parse("blas, head_output=onednn") == Products(
        **dict.fromkeys(vars(Products()), "blas") | {"head_output": "onednn"}
    )
    for wrong in ("mkl", "outputs=own", "output="):
        with pytest.raises(TutelageError, match=wrong):
            Products.parse(wrong)


@needs_compiler
def test_another_library_is_taken_where_it_saves_more_than_the_margin():
    assert products._fastest({"own": 1.0, "blas": 0.91, "onednn": 2.0}, 0.1) == "own"
    assert products._fastest({"own": 1.0, "blas": 0.89, "onednn": 2.0}, 0.1) == "blas"
    assert products._fastest({"blas": 1.0, "onednn": 0.99}, 0.1) == "onednn", "without compiled kernels"


@needs_compiler
def test_invariant_outputs_are_worth_more_than_a_fast_gradient(monkeypatch):
    quicker = {kind: {"own": 1.0, "blas": 2.0, "onednn": 0.8} for kind in vars(Products())}
    monkeypatch.setattr(products, "measure", lambda: quicker)
    measured = Products.measure()
    assert measured.is_invariant
    assert (measured.input_gradient, measured.head_weight_gradient) == ("onednn", "onednn")


def test_what_was_measured_is_kept_for_the_machine(unset, monkeypatch):
    measured = []
    monkeypatch.setattr(Products, "measure", classmethod(lambda cls: measured.append(1) or ALL_BLAS))
    assert products.products() == ALL_BLAS
    assert json.loads(products.choice_file().read_text())["output"] == "blas"
    products.forget()
    assert products.products() == ALL_BLAS
    assert len(measured) == 1
    products.choice_file().write_text("{")
    products.forget()
    products.products()
    assert len(measured) == 2, "a broken file is made anew"


def test_of_two_processes_that_measure_the_first_decides(unset, monkeypatch):
    def measure(cls):
        products.choice_file().parent.mkdir(parents=True, exist_ok=True)
        products.choice_file().write_text(json.dumps(vars(ALL_BLAS)))
        return Products()

    monkeypatch.setattr(Products, "measure", classmethod(measure))
    assert products.products() == ALL_BLAS


def test_a_choice_is_taken_again_on_its_machine_alone(unset, monkeypatch):
    monkeypatch.setattr(Products, "measure", classmethod(lambda cls: Products()))
    assert products.state() is None, "nothing was computed"
    products.products()
    kept = products.state() | {"products": vars(ALL_BLAS)}
    products.forget()
    assert products.resume(kept) == ""
    assert products.products() == ALL_BLAS
    products.forget()
    assert products.resume(kept | {"machine": "another"})
    assert products.products() == Products().on_this_machine()
    monkeypatch.setenv(products.VARIABLE, "onednn")
    products.forget()
    assert products.resume(kept), "the environment prevails, and the run says so"
