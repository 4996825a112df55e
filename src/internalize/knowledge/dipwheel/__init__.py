"""What the vocabulary of Dipwheel can say: families of claims (`families`) and their forms in words
(`forms`)."""

from internalize.knowledge.dipwheel.lexicon import DipwheelLexicon

__all__ = ["DipwheelLexicon"]
