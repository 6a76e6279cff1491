"""Arithmetic in fractions: exact wherever the result is a rational number.

An expression is parsed as Python's, and evaluated node by node; nothing else of Python is reachable. Numbers are
fractions of at most `BITS` bits, so that 0.1 + 0.2 is 0.3 and no expression takes long. Irrational values (roots,
logarithms, exponentials) have `DIGITS` digits, trigonometric ones those of double precision.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException, localcontext
from fractions import Fraction
from typing import TypeAlias

from tutelage.base.nouns import counted

Number: TypeAlias = Fraction

BITS = 10_000
"""Size of a number: bits of its numerator and denominator together; an integer has up to 3,010 digits."""
CHARACTERS = 1_000
"""Length of an expression."""
DIGITS = 50
"""Significant digits of irrational values in a computation."""
EXACT, ROUNDED = 25, 15
"""Significant digits up to which a finite decimal is shown exactly, and to which any other number is rounded."""


class Uncomputable(ValueError):
    """Raised for what is no arithmetic, has no value, or is too large."""


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression, exactly where possible.

    Args:
        expression: Numbers with + - * / // % ** and parentheses, pi, e, and the functions abs, ceil, cos, exp,
            factorial, floor, log, log10, max, min, round, sin, sqrt, tan; for example "sqrt(2) * (1.5 + 3)".
    """
    text = expression.strip().translate(str.maketrans("×·÷−", "**/-"))
    if len(text) > CHARACTERS:
        raise Uncomputable(f"an expression of {counted(len(text), 'character')} is longer than {CHARACTERS:,}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError) as error:
        raise Uncomputable(f"{text!r} is not an arithmetic expression") from error
    with localcontext(Context(prec=DIGITS, Emax=BITS // 3, Emin=-BITS // 3)):
        try:
            return number_text(_value(tree.body, text))
        except ZeroDivisionError as error:
            raise Uncomputable("division by zero") from error
        except (OverflowError, DecimalException, RecursionError) as error:
            raise Uncomputable("a number in it is too large, or has no real value") from error


def _value(node: ast.expr, text: str) -> Number:
    match node:
        case ast.Constant(value=bool() | complex()):
            pass
        case ast.Constant(value=int(number)):
            return _bounded(Fraction(number))
        case ast.Constant(value=float()):
            return _decimal(Decimal((ast.get_source_segment(text, node) or "").replace("_", "")))
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            value = _value(node.operand, text)
            return -value if isinstance(node.op, ast.USub) else value
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            return _bounded(OPERATORS[type(op)](_value(node.left, text), _value(node.right, text)))
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return _call(name, [_value(argument, text) for argument in node.args])
    piece = ast.get_source_segment(text, node) or text
    hint = "; powers are written **" if isinstance(getattr(node, "op", None), ast.BitXor) else ""
    hint = "; numbers are written without commas" if isinstance(node, ast.Tuple) else hint
    raise Uncomputable(f"{piece!r} is not arithmetic of this calculator{hint}")


def _call(name: str, arguments: list[Number]) -> Number:
    function, fewest, most = FUNCTIONS[name]
    if not fewest <= len(arguments) <= most:
        raise Uncomputable(f"{name} does not take {counted(len(arguments), 'argument')}")
    return _bounded(Fraction(function(*arguments)))


def _bounded(value: Number) -> Number:
    if value.numerator.bit_length() + value.denominator.bit_length() > BITS:
        raise Uncomputable(f"a number in it is too large: more than {BITS:,} bits")
    return value


def _decimal(value: Decimal) -> Number:
    """Fraction of a decimal, whose exponent is checked before its digits are written out."""
    if abs(value.adjusted()) > BITS // 3:
        raise Uncomputable("a number in it has too large an exponent")
    return _bounded(Fraction(value))


def _inexact(function: Callable[..., Decimal]) -> Callable[..., Number]:
    """A function of decimals as one of fractions, computed with `DIGITS` digits."""

    def compute(*values: Number) -> Number:
        return _decimal(function(*(Decimal(value.numerator) / Decimal(value.denominator) for value in values)))

    return compute


def _power(base: Number, exponent: Number) -> Number:
    if exponent.denominator == 2 and base >= 0:
        return _power(_sqrt(base), exponent * 2)
    if exponent.denominator != 1:
        return _inexact(operator.pow)(base, exponent)
    size = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if size * abs(exponent) > BITS:
        raise Uncomputable(f"a power in it is too large: more than {BITS:,} bits")
    if not size:  # 0, 1 and -1: an exponent of the same sign and parity
        exponent = exponent % 2 + (exponent > 0) * 2 - (exponent < 0) * 2
    return Fraction(base ** int(exponent))


def _sqrt(value: Number) -> Number:
    if value < 0:
        raise Uncomputable("the square root of a negative number is not real")
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return root if root * root == value else _inexact(Decimal.sqrt)(value)


def _log(value: Number, base: Number | None = None) -> Number:
    if value <= 0 or (base is not None and base <= 0):
        raise Uncomputable("the logarithm needs positive numbers")
    natural = _inexact(Decimal.ln)
    return natural(value) if base is None else natural(value) / natural(base)


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    return Fraction(round(value, _integer(digits, -BITS // 4, BITS // 4)))


def _integer(value: Number, least: int, most: int) -> int:
    if value.denominator != 1 or not least <= value <= most:
        raise Uncomputable(f"{number_text(value)} is not an integer from {least:,} to {most:,}")
    return int(value)


OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
CONSTANTS: Mapping[str, Number] = {
    "pi": Fraction("3.14159265358979323846264338327950288419716939937511"),
    "e": Fraction("2.71828182845904523536028747135266249775724709369996"),
}
FUNCTIONS: Mapping[str, tuple[Callable[..., Number | int | float], int, int]] = {
    "abs": (abs, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "cos": (math.cos, 1, 1),
    "exp": (_inexact(Decimal.exp), 1, 1),
    "factorial": (lambda value: math.factorial(_integer(value, 0, 1_100)), 1, 1),
    "floor": (math.floor, 1, 1),
    "log": (_log, 1, 2),
    "log10": (_inexact(Decimal.log10), 1, 1),
    "max": (lambda *values: max(values), 1, 99),
    "min": (lambda *values: min(values), 1, 99),
    "round": (_round, 1, 2),
    "sin": (math.sin, 1, 1),
    "sqrt": (_sqrt, 1, 1),
    "tan": (math.tan, 1, 1),
}
"""Functions with the fewest and the most arguments."""


def number_text(value: Number) -> str:
    """An integer or a finite decimal of at most `EXACT` digits exactly, any other number with `ROUNDED` significant
    digits."""
    if value.denominator == 1:
        return str(value.numerator)
    with localcontext(Context(prec=EXACT)) as context:
        decimal = Decimal(value.numerator) / Decimal(value.denominator)
        if Fraction(decimal) != value:
            context.prec = ROUNDED
            decimal = (+decimal).normalize()
    return f"{decimal:f}" if abs(decimal.adjusted()) < ROUNDED else str(decimal)
