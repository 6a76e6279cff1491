"""Formulas, typeset when the site is built: HTML with italics and indices, so that a page needs neither a script nor a
font for mathematics, and a line may be broken on a phone.

An indented block of a page in docs/ is a formula in plain text, written as in the docstrings of the code:
`Psi_t = r_t + gamma V(s_t+1) - V(s_t), whitened`. Single letters and Greek letters, by their names too, are variables;
`_` and `^`, or ₜ and ², attach an index or an exponent, which ends at a space, or at its bracket if it has one; two
spaces are a wide one. Everything else is words.
"""

import re
import unicodedata
from html import escape

LETTERS = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "lambda": "λ", "pi": "π", "rho": "ρ", "Psi": "Ψ"}
SIGNS = {
    "-": "−",
    "<=": "≤",
    ">=": "≥",
    "...": "…",
    "||": "‖",
    "*": "·",
    "grad": "∇",
    "sum": "∑",
    "prod": "∏",
    "Σ": "∑",
}
UNBROKEN = "\N{WORD JOINER}\N{NO-BREAK SPACE}"
"""A space at which no line is broken, not after a | either."""
TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |(?<=\S)(?P<low>_(?:\{{[^}}]*\}}|\w+(?:[+-]\w+)*)|[ₖₙₜ₀₁₂₊₋]+)
    |(?<=\S)(?P<high>\^(?:\([^)]*\)|\w+)|[ᵏⁿᵗᵀ¹²³⁻]+|\*(?=\())
    |(?P<sign>\|\||<=|>=|\.\.\.|grad\b|(?:sum|prod)(?=_|\b(?!-|\s(?:over|of|from)\b)))
    |(?P<article>a(?=\s[a-z]{{2}}))
    |(?P<variable>[α-ωΑ-ΡΤ-Ω]|(?:{"|".join(LETTERS)}|[A-Za-z](?!_[a-z]{{2,}}_))(?![A-Za-z0-9]))
    |(?P<number>\d*\.?\d+(?:e-\d+)?)
    |(?P<word>[A-Za-z][\w.-]*(?<=\w)(?:'s?)?)
    |(?P<other>.)""",
    re.VERBOSE,
)


def typeset(text: str) -> str:
    """The HTML of a formula, a paragraph for each line."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows = (f'<p class="{"further" if line[0] == " " else "first"}">{line_of(line.strip())}</p>' for line in lines)
    return f'<div class="formula">{"".join(rows)}</div>'


def line_of(text: str) -> str:
    """The HTML of a line, an index or an exponent. Within brackets it is broken beside words only."""
    tokens = list(TOKEN.finditer(text))
    html, depth = "", 0
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        kind, said = str(token.lastgroup), token.group()
        depth += (said in "([{") - (said in ")]}")
        if kind == "space" and len(said) > 1:
            html += '<span class="gap"> </span>'
        elif kind == "space":
            beside = {each.lastgroup for each in (before, after) if each is not None}
            html += " " if depth == 0 or "word" in beside else UNBROKEN
        elif kind in ("low", "high"):
            tag, plain = ("sub", "sup")[kind == "high"], unicodedata.normalize("NFKC", said).lstrip("_^")
            html += f"<{tag}>{line_of(plain[1:-1] if plain[0] in '{(' else plain)}</{tag}>"
        elif kind == "variable":
            html += f"<i>{LETTERS.get(said, said)}</i>"
        else:
            html += escape(SIGNS.get(said, said) if kind in ("sign", "other") else said, quote=False)
    return html
