"""The reference pages of the documentation, written from the code that they describe."""
