"""Kept so that older tools can install the package; everything is in pyproject.toml."""

from setuptools import setup

setup()
