"""Formulas for a page without scripts: the part of TeX that the errata use, as MathML, which browsers draw."""

import re
import unicodedata
from html import escape


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_LETTERS = _pairs(
    """
    alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi
    ξ pi π rho ρ sigma σ tau τ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ
    Phi Φ Psi Ψ Omega Ω infty ∞ ell ℓ partial ∂ nabla ∇
    """
)
_OPERATORS = _pairs(
    """
    le ≤ ge ≥ ne ≠ ll ≪ gg ≫ to → in ∈ sim ∼ approx ≈ propto ∝ pm ± mp ∓ times × cdot · star ⋆ sum ∑ prod ∏ int ∫
    ldots … cdots ⋯ vert | lvert | rvert | langle ⟨ rangle ⟩
    """
)
_FUNCTIONS = ("ln", "log", "exp", "min", "max", "Pr", "sin", "cos", "tanh", "det", "dim", "lim", "tr")
_ALPHABETS = {"mathcal": "SCRIPT", "mathbf": "BOLD", "mathsf": "SANS-SERIF", "mathbb": "DOUBLE-STRUCK"}
_ACCENTS = {"dot": "˙", "hat": "^", "bar": "¯", "tilde": "~"}
_SPACES = {",": "0.17em", ";": "0.28em", " ": "0.25em", "quad": "1em", "!": "0em"}
_TOKEN = re.compile(r"\\([a-zA-Z]+|.)\s*|(\S)")


def mathml(tex: str) -> str:
    """The formula as an element ``<math>``. A ValueError names what it has that is not known here."""
    parser = _Parser([f"\\{name}" if name else sign for name, sign in _TOKEN.findall(tex)])
    row = parser.row(stop=None)
    return f"<math>{row}</math>"


class _Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens[::-1]

    def row(self, stop: str | None) -> str:
        """Atoms with their scripts, up to the token ``stop``, which is taken too."""
        parts: list[str] = []
        upright = False
        while self.tokens and self.tokens[-1] != stop:
            if self.tokens[-1] == r"\rm":
                self.tokens.pop()
                upright = True
                continue
            parts.append(self.scripts(self.word() if upright and self.tokens[-1].isalpha() else self.atom(whole=True)))
        if stop is not None:
            self.take(stop)
        return "".join(parts)

    def scripts(self, base: str) -> str:
        found: dict[str, str] = {}
        while self.tokens and self.tokens[-1] in ("^", "_"):
            kind = self.tokens.pop()
            if kind in found:
                raise ValueError(f"two scripts {kind!r} on one base")
            found[kind] = self.atom()
        if len(found) == 2:
            return f"<msubsup>{base}{found['_']}{found['^']}</msubsup>"
        for kind, script in found.items():
            tag = "msup" if kind == "^" else "msub"
            return f"<{tag}>{base}{script}</{tag}>"
        return base

    def atom(self, whole: bool = False) -> str:
        """One element. Numbers have one digit where TeX takes one, as in ``x^12``, and all of them if ``whole``."""
        token = self.next()
        if token == "{":
            return f"<mrow>{self.row(stop='}')}</mrow>"
        if token.startswith("\\") and token != "\\":
            return self.command(token[1:])
        if token.isdecimal():
            while whole and self.tokens and (self.tokens[-1].isdecimal() or self.tokens[-1] == "."):
                token += self.tokens.pop()
            return f"<mn>{token}</mn>"
        if token in "}^_&#\\":
            raise ValueError(f"{token!r} where a symbol should be")
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        return _operator({"-": "−", "'": "′"}.get(token, token))

    def command(self, name: str) -> str:
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"/>'
        if name in _FUNCTIONS:
            room = "" if self.tokens and self.tokens[-1] in "([^_" else '<mspace width="0.17em"/>'
            return f"<mrow><mi>{name}</mi>{room}</mrow>"
        if name in _ALPHABETS:
            return f"<mi>{''.join(_in_alphabet(_ALPHABETS[name], letter) for letter in self.letters())}</mi>"
        if name in ("text", "operatorname"):
            return f"<mtext>{escape(self.letters())}</mtext>"
        if name in ("frac", "tfrac"):
            return f"<mfrac>{self.atom()}{self.atom()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.atom()}</msqrt>"
        if name in _ACCENTS:
            return f'<mover accent="true">{self.atom()}<mo>{_ACCENTS[name]}</mo></mover>'
        if name == "left":
            first, inner, last = self.next(), self.row(stop=r"\right"), self.next()
            return f"<mrow>{_fence(first)}{inner}{_fence(last)}</mrow>"
        if name in ("big", "Big"):
            return self.atom()
        if name in _LETTERS:
            # Greek capitals stand upright, as in TeX.
            upright = ' mathvariant="normal"' if name[0].isupper() else ""
            return f"<mi{upright}>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return _operator(_OPERATORS[name])
        raise ValueError(f"\\{name} is not known")

    def word(self) -> str:
        letters = ""
        while self.tokens and self.tokens[-1].isalpha():
            letters += self.tokens.pop()
        return f"<mtext>{escape(letters)}</mtext>"

    def letters(self) -> str:
        """The letters of an argument: one token, or a group of them."""
        token = self.next()
        if token != "{":
            return token
        letters = ""
        while (token := self.next()) != "}":
            letters += token
        return letters

    def take(self, expected: str) -> None:
        token = self.next()
        if token != expected:
            raise ValueError(f"{token!r} where {expected!r} should be")

    def next(self) -> str:
        if not self.tokens:
            raise ValueError("the formula ends too early")
        return self.tokens.pop()


def _operator(sign: str) -> str:
    # Brackets as high as a fraction elsewhere in the formula are not meant; a slash has no room around it.
    tight = ' lspace="0" rspace="0"' if sign in "/|" else ""
    return f'<mo stretchy="false"{tight}>{escape(sign)}</mo>'


def _fence(token: str) -> str:
    return "" if token == "." else f'<mo stretchy="true">{escape(token)}</mo>'


def _in_alphabet(alphabet: str, letter: str) -> str:
    """Unicode has a letter for each alphabet; a few older ones lack the first word of the name."""
    name = f"{alphabet} {'CAPITAL' if letter.isupper() else 'SMALL'} {letter.upper()}"
    for full in (f"MATHEMATICAL {name}", name):
        try:
            return unicodedata.lookup(full)
        except KeyError:
            continue
    raise ValueError(f"{letter!r} has no form in {alphabet.lower()}")
